// Opening a model: read and check the file, plan memory, load, start the engine thread.
#include "okibi/engine.h"

#include <fmt/format.h>

#include "engine/engine_state.h"
#include "engine/memory_plan.h"
#include "engine/open_backend.h"
#include "engine/open_engine.h"
#include "engine/text_impl.h"
#include "gguf/reader.h"
#include "model/registry.h"
#include "model/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace okibi {
namespace {

struct Opened {
  gguf::File file;
  std::unique_ptr<ops::Backend> backend;
  engine::SizedPlan sized;
};

// Everything that can be known and refused without loading a weight.
Result<Opened> open_and_plan(const EngineOptions& options) {
  OKIBI_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(options.model_path));
  OKIBI_ASSIGN_OR_RETURN(std::unique_ptr<ops::Backend> backend,
                         engine::open_backend({.cpu_level = options.cpu_level,
                                               .n_threads = options.n_threads,
                                               .f32_activations = options.f32_activations}));
  model::WeightLoader planner(file, *backend, nullptr);
  auto model = model::load_model(planner);
  if (!model.ok()) return model.status().with_context(options.model_path);
  OKIBI_ASSIGN_OR_RETURN(engine::SizedPlan sized,
                         engine::plan_memory(options, **model, planner.packed_bytes()));
  return Opened{std::move(file), std::move(backend), std::move(sized)};
}

ModelInfo make_info(const gguf::File& file, const model::ModelFacts& facts,
                    const engine::Core::Sizes& sizes) {
  ModelInfo info;
  info.architecture = facts.architecture;
  info.name = facts.name;
  info.n_parameters = facts.n_parameters;
  info.file_bytes = file.file_bytes();
  info.n_layers = static_cast<uint32_t>(facts.n_layers);
  info.n_vocab = static_cast<uint32_t>(facts.n_vocab);
  info.n_ctx_trained = static_cast<uint32_t>(facts.n_ctx_trained);
  info.kv_bytes_per_token = ops::kv_page_bytes({.layers = facts.kv_layers,
                                                .type = sizes.kv_type,
                                                .page_tokens = sizes.page_tokens,
                                                .max_pages = 1}) /
                            static_cast<uint64_t>(sizes.page_tokens);
  info.state_bytes = facts.state_floats * sizeof(float);
  info.weight_bytes_per_token = facts.weight_bytes_per_token;
  info.macs_per_token = facts.macs_per_token;
  info.output_macs = facts.output_macs;
  return info;
}

}  // namespace

Result<MemoryPlan> Engine::plan(const EngineOptions& options) {
  OKIBI_ASSIGN_OR_RETURN(Opened opened, open_and_plan(options));
  return opened.sized.plan;
}

Result<std::shared_ptr<Engine>> Engine::open(EngineOptions options) {
  return engine::open_engine(std::move(options), {});
}

Result<std::shared_ptr<Engine>> engine::open_engine(EngineOptions options,
                                                    const BackendWrapper& wrap) {
  OKIBI_ASSIGN_OR_RETURN(Opened opened, open_and_plan(options));
  if (wrap) opened.backend = wrap(std::move(opened.backend));
  const MemoryPlan& plan = opened.sized.plan;
  if (!plan.fits()) {
    return resource_exhausted(
        fmt::format("{}: does not fit into memory\n{}", options.model_path, plan.table()));
  }
  auto vocabulary = model::read_vocabulary(opened.file);
  if (!vocabulary.ok()) return vocabulary.status().with_context(options.model_path);
  auto tokenizer = tokenizer::Tokenizer::create(std::move(vocabulary).value());
  if (!tokenizer.ok()) return tokenizer.status().with_context(options.model_path);

  model::WeightLoader loader(opened.file, *opened.backend, opened.backend.get());
  if (options.on_load_progress) {
    const double total = static_cast<double>(opened.file.file_bytes());
    loader.on_progress = [&options, total](uint64_t done) {
      options.on_load_progress(std::min(1.0, static_cast<double>(done) / total));
    };
  }
  auto model = model::load_model(loader);
  if (!model.ok()) return model.status().with_context(options.model_path);

  auto state = std::make_unique<EngineAccess::State>();
  state->memory = plan;
  state->info = make_info(opened.file, (*model)->facts(), opened.sized.sizes);
  state->n_threads = options.n_threads > 0 ? options.n_threads : engine::default_thread_count();
  for (ops::Weight w : (*model)->facts().weights) {
    state->weight_lines.push_back(opened.backend->describe_weight(w));
  }
  state->text = make_text(std::move(tokenizer).value(), options.chat_layout);
  OKIBI_ASSIGN_OR_RETURN(std::unique_ptr<engine::Core> core,
                         engine::Core::create(std::move(opened.backend), std::move(model).value(),
                                              opened.sized.sizes));
  state->identity = core->numeric_identity();
  state->scheduler = std::make_unique<engine::Scheduler>(std::move(core));
  state->options = std::move(options);
  return EngineAccess::make(std::move(state));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const Text& Engine::text() const {
  return *state_->text;
}
const ModelInfo& Engine::info() const {
  return state_->info;
}
const MemoryPlan& Engine::memory() const {
  return state_->memory;
}
uint32_t Engine::n_ctx() const {
  return state_->memory.n_ctx;
}
uint32_t Engine::max_batch_rows() const {
  return state_->options.max_batch_rows;
}
int Engine::n_threads() const {
  return state_->n_threads;
}
const std::string& Engine::numeric_identity() const {
  return state_->identity;
}
std::vector<std::string> Engine::describe_weights() const {
  return state_->weight_lines;
}
engine::Scheduler& Engine::scheduler() {
  return *state_->scheduler;
}

void Engine::set_profiling(bool on) {
  scheduler().call([on](engine::Core& core) { core.backend().trace().enable(on); });
}

Engine::Profile Engine::take_profile() {
  Profile profile;
  scheduler().call([&](engine::Core& core) {
    ExecTrace& trace = core.backend().trace();
    profile = {.table = trace.table(), .chrome_json = trace.chrome_json()};
    trace.clear();
  });
  return profile;
}

}  // namespace okibi
