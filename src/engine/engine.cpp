// Opening a model: read and check the file, plan memory, load, start the engine thread.
#include "okibi/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/engine_state.h"
#include "engine/memory_plan.h"
#include "engine/open_backend.h"
#include "engine/open_engine.h"
#include "engine/text_impl.h"
#include "engine/vision_tokens.h"
#include "gguf/reader.h"
#include "model/file_identity.h"
#include "model/registry.h"
#include "model/vocabulary.h"
#include "ops/kv_layout.h"
#include "tokenizer/tokenizer.h"

namespace okibi {
namespace {

constexpr int64_t kMaxCacheMib = 4096;

struct Opened {
  gguf::File file;
  std::optional<gguf::File> vision_file;
  std::unique_ptr<ops::Backend> backend;
  engine::SizedPlan sized;
};

// What the vision file will need, after checking it against the text model.
Result<std::vector<MemoryPlan::Row>> plan_vision(const EngineOptions& options,
                                                 const gguf::File& file,
                                                 const ops::Backend& backend,
                                                 const model::ModelFacts& facts) {
  model::WeightLoader planner(file, backend, nullptr);
  OKIBI_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::VisionEncoder> encoder,
      model::VisionEncoder::load(planner, {.d_model = facts.d_model, .n_layers = facts.n_layers}));
  const int64_t max_patches = encoder->hparams().max_view_patches();
  return std::vector<MemoryPlan::Row>{
      {"vision weights, packed", planner.packed_bytes()},
      {fmt::format("vision activations, {} patches per step", max_patches),
       encoder->activation_bytes(max_patches)},
      {"vision cache", static_cast<uint64_t>(options.vision_cache_mib) << 20}};
}

// Everything that can be known and refused without loading a weight.
Result<Opened> open_and_plan(const EngineOptions& options) {
  for (const auto& [name, mib] :
       {std::pair{"vision", options.vision_cache_mib}, std::pair{"state", options.state_cache_mib},
        std::pair{"answer", options.answer_cache_mib}}) {
    if (mib < 0 || mib > kMaxCacheMib) {
      return invalid_argument(
          fmt::format("{} cache of {} MiB: expected 0 (off) to {}", name, mib, kMaxCacheMib));
    }
  }
  OKIBI_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(options.model_path));
  OKIBI_ASSIGN_OR_RETURN(std::unique_ptr<ops::Backend> backend,
                         engine::open_backend({.cpu_level = options.cpu_level,
                                               .n_threads = options.n_threads,
                                               .activations = options.activations}));
  model::WeightLoader planner(file, *backend, nullptr);
  planner.may_round = options.activations == ActivationType::kBf16;
  auto model = model::load_model(planner);
  if (!model.ok()) return model.status().with_context(options.model_path);
  std::optional<gguf::File> vision_file;
  std::vector<MemoryPlan::Row> vision_rows;
  if (!options.mmproj_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(vision_file, gguf::File::open(options.mmproj_path));
    auto rows = plan_vision(options, *vision_file, *backend, (*model)->facts());
    if (!rows.ok()) return rows.status().with_context(options.mmproj_path);
    vision_rows = std::move(rows).value();
  }
  OKIBI_ASSIGN_OR_RETURN(
      engine::SizedPlan sized,
      engine::plan_memory(options, **model, planner.packed_bytes(), vision_rows));
  return Opened{std::move(file), std::move(vision_file), std::move(backend), std::move(sized)};
}

// Over all that a view's rows depend on besides its pixels.
Sha256 vision_identity(const gguf::File& file, const gguf::File& vision_file,
                       std::string_view numeric_identity) {
  Sha256Stream stream;
  stream.update(model::file_identity(file, /*with_data=*/false));
  stream.update(model::file_identity(vision_file, /*with_data=*/true));
  stream.update(bytes_of(numeric_identity));
  return stream.finish();
}

// The encoder, its memory and its tokens. The backend must not have begun a step.
Result<std::unique_ptr<model::VisionEncoder>> load_vision(const Opened& opened,
                                                          const model::ModelFacts& facts,
                                                          VisionInfo* info,
                                                          std::vector<std::string>* lines) {
  model::WeightLoader loader(*opened.vision_file, *opened.backend, opened.backend.get());
  OKIBI_ASSIGN_OR_RETURN(
      std::unique_ptr<model::VisionEncoder> encoder,
      model::VisionEncoder::load(loader, {.d_model = facts.d_model, .n_layers = facts.n_layers}));
  const model::VisionHparams& h = encoder->hparams();
  OKIBI_RETURN_IF_ERROR(encoder->add_activations(*opened.backend, h.max_view_patches()));
  for (ops::Weight w : encoder->weights()) lines->push_back(opened.backend->describe_weight(w));
  info->name = h.name;
  info->n_parameters = encoder->n_parameters();
  info->file_bytes = opened.vision_file->file_bytes();
  info->n_layers = static_cast<uint32_t>(h.n_layers);
  info->max_view_tokens = static_cast<uint32_t>(h.max_view_patches() / h.patches_per_token());
  info->has_input_norm = h.has_input_norm;
  return encoder;
}

std::vector<AttentionInfo> attention_info(const model::ModelFacts& facts, ops::KvType type) {
  CHECK(facts.query_heads.size() == facts.kv_layers.size(), "%zu and %zu attention layers",
        facts.query_heads.size(), facts.kv_layers.size());
  std::vector<AttentionInfo> layers;
  for (size_t i = 0; i < facts.kv_layers.size(); ++i) {
    const ops::KvLayerShape& kv = facts.kv_layers[i];
    const model::QueryHeads& heads = facts.query_heads[i];
    AttentionInfo layer;
    layer.row_bytes = static_cast<uint64_t>(kv.n_kv_heads) *
                      (ops::kv_row_bytes(type, kv.k_dim) + ops::kv_row_bytes(type, kv.v_dim));
    layer.row_macs = static_cast<uint64_t>(heads.n_heads) *
                     (static_cast<uint64_t>(kv.k_dim) + static_cast<uint64_t>(kv.v_dim));
    layer.only_tails = heads.only_tails;
    if (kv.index.valid()) {
      const auto dim = static_cast<uint64_t>(kv.index.dim);
      layer.block_tokens = static_cast<uint32_t>(kv.index.block_tokens);
      layer.budget = static_cast<uint32_t>(kv.index.budget);
      layer.index_key_bytes = dim * sizeof(float);
      layer.score_macs = static_cast<uint64_t>(heads.n_index_heads) * dim;
    }
    layers.push_back(layer);
  }
  return layers;
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
  info.kv_bytes_per_token =
      ops::kv_page_bytes(sizes.kv_config(facts)) / static_cast<uint64_t>(sizes.page_tokens);
  info.attention = attention_info(facts, sizes.kv_type);
  for (const AttentionInfo& layer : info.attention) {
    if (layer.block_tokens > 0) ++info.n_sparse_layers;
  }
  info.state_bytes = facts.state_floats * sizeof(float);
  info.weight_bytes_per_token = facts.weight_bytes_per_token;
  info.expert_bytes_per_token = facts.expert_bytes_per_token;
  info.output_bytes = facts.output_bytes;
  info.macs_per_token = facts.macs_per_token;
  info.tail_macs_per_token = facts.tail_macs_per_token;
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
    const char* hint = options.activations == ActivationType::kBf16
                           ? " (for bfloat16 activations, weights of Q8_0 and F16 take twice their "
                             "bytes; for 8-bit ones they do not)"
                           : "";
    return resource_exhausted(
        fmt::format("{}: does not fit into memory{}\n{}", options.model_path, hint, plan.table()));
  }
  auto vocabulary = model::read_vocabulary(opened.file);
  if (!vocabulary.ok()) return vocabulary.status().with_context(options.model_path);
  auto tokenizer = tokenizer::Tokenizer::create(std::move(vocabulary).value());
  if (!tokenizer.ok()) return tokenizer.status().with_context(options.model_path);

  auto state = std::make_unique<EngineAccess::State>();
  state->model_file = std::move(opened.file);
  const gguf::File& file = *state->model_file;
  model::WeightLoader loader(file, *opened.backend, opened.backend.get());
  loader.may_round = options.activations == ActivationType::kBf16;
  if (options.on_load_progress) {
    const double total = static_cast<double>(file.file_bytes());
    loader.on_progress = [&options, total](uint64_t done) {
      options.on_load_progress(std::min(1.0, static_cast<double>(done) / total));
    };
  }
  auto model = model::load_model(loader);
  if (!model.ok()) return model.status().with_context(options.model_path);

  state->memory = plan;
  state->info = make_info(file, (*model)->facts(), opened.sized.sizes);
  state->n_threads = options.n_threads > 0 ? options.n_threads : engine::default_thread_count();
  for (ops::Weight w : (*model)->facts().weights) {
    state->weight_lines.push_back(opened.backend->describe_weight(w));
  }
  std::unique_ptr<model::VisionEncoder> encoder;
  TokenId image_token = -1;
  if (opened.vision_file.has_value()) {
    auto loaded = load_vision(opened, (*model)->facts(), &state->vision_info, &state->weight_lines);
    if (!loaded.ok()) return loaded.status().with_context(options.mmproj_path);
    encoder = std::move(loaded).value();
    auto found = find_vision_tokens(**tokenizer, encoder->hparams().views);
    if (!found.ok()) return found.status().with_context(options.model_path);
    image_token = *found;
  }
  state->text = make_text(std::move(tokenizer).value(), options.chat_layout);
  OKIBI_ASSIGN_OR_RETURN(std::unique_ptr<engine::Core> core,
                         engine::Core::create(std::move(opened.backend), std::move(model).value(),
                                              opened.sized.sizes));
  state->identity = core->numeric_identity();
  if (encoder != nullptr) {
    const Sha256 identity = vision_identity(file, *opened.vision_file, state->identity);
    state->vision_info.identity = to_hex(identity);
    state->vision =
        std::make_unique<engine::Vision>(std::move(encoder), identity, image_token,
                                         static_cast<uint64_t>(options.vision_cache_mib) << 20);
  }
  state->scheduler = std::make_unique<engine::Scheduler>(std::move(core));
  state->answers =
      std::make_unique<reuse::AnswerCache>(static_cast<uint64_t>(options.answer_cache_mib) << 20);
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
