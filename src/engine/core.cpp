#include "engine/core.h"

#include <fmt/format.h>

#include "base/check.h"

namespace okibi::engine {
namespace {

// Empty while no item had any; from the first on, one entry per row.
void add_embeddings(const StepItem& item, size_t first_row, std::vector<const float*>& all) {
  if (item.embeddings.empty() && all.empty()) return;
  all.resize(first_row, nullptr);
  all.insert(all.end(), item.embeddings.begin(), item.embeddings.end());
  all.resize(first_row + item.tokens.size(), nullptr);
}

}  // namespace

Result<std::unique_ptr<Core>> Core::create(std::unique_ptr<ops::Backend> backend,
                                           std::unique_ptr<model::Model> model,
                                           const Sizes& sizes) {
  auto core = std::unique_ptr<Core>(new Core());
  const model::ModelFacts& facts = model->facts();
  OKIBI_RETURN_IF_ERROR(backend->set_kv(sizes.kv_config(facts)));
  OKIBI_RETURN_IF_ERROR(
      backend->set_state({.floats_per_slot = facts.state_floats, .max_slots = sizes.n_slots}));
  OKIBI_RETURN_IF_ERROR(model->add_activations(*backend, sizes.max_batch_rows, sizes.max_outputs));
  core->sizes_ = sizes;
  core->backend_ = std::move(backend);
  core->model_ = std::move(model);
  core->pages_ =
      std::make_unique<reuse::PagePool>(core->backend_.get(), sizes.n_pages, sizes.page_tokens);
  core->slots_ = std::make_unique<reuse::SlotPool>(sizes.n_slots);
  core->pools_ = {.pages = core->pages_.get(),
                  .slots = core->slots_.get(),
                  .has_state = facts.state_floats > 0,
                  .has_kv = !facts.kv_layers.empty()};
  const uint64_t page_bytes = ops::kv_page_bytes(sizes.kv_config(facts));
  core->prefixes_ = std::make_unique<reuse::PrefixCache>(
      sizes.state_cache_bytes,
      reuse::PrefixCache::Costs{.page_bytes = facts.kv_layers.empty() ? 0 : page_bytes,
                                .slot_bytes = facts.state_floats * sizeof(float)});
  core->identity_ = core->backend_->numeric_identity();
  return core;
}

Status Core::prepare(reuse::Sequence& sequence, uint32_t n_more) {
  const uint64_t n = uint64_t{sequence.n_tokens()} + n_more;
  if (n > sizes_.n_ctx) {
    return resource_exhausted(
        fmt::format("the context is full: {} tokens and {} more are over the limit of {}",
                    sequence.n_tokens(), n_more, sizes_.n_ctx));
  }
  while (true) {
    Status status = sequence.prepare(n_more);
    if (status.code() != StatusCode::kResourceExhausted || !prefixes_->evict()) return status;
  }
}

void Core::run_step(std::span<StepItem> items) {
  tokens_.clear();
  positions_.clear();
  labels_.clear();
  row_sequence_.clear();
  output_rows_.clear();
  label_begin_.clear();
  spans_.clear();
  embeddings_.clear();
  bool has_labels = false;
  for (const StepItem& item : items) {
    const uint32_t first_row = static_cast<uint32_t>(tokens_.size());
    const uint32_t n_past = item.sequence->n_tokens();
    const uint32_t index = static_cast<uint32_t>(spans_.size());
    spans_.push_back(item.sequence->span(first_row, static_cast<uint32_t>(item.tokens.size())));
    for (size_t i = 0; i < item.tokens.size(); ++i) {
      tokens_.push_back(item.tokens[i]);
      positions_.push_back(static_cast<int32_t>(n_past + i));
      row_sequence_.push_back(index);
    }
    add_embeddings(item, first_row, embeddings_);
    for (uint32_t output = item.first_output; output < item.tokens.size(); ++output) {
      output_rows_.push_back(first_row + output);
      label_begin_.push_back(static_cast<uint32_t>(labels_.size()));
      labels_.insert(labels_.end(), item.labels.begin(), item.labels.end());
      has_labels |= !item.labels.empty();
    }
  }
  CHECK(tokens_.size() <= sizes_.max_batch_rows && output_rows_.size() <= sizes_.max_outputs,
        "%zu rows, %zu outputs", tokens_.size(), output_rows_.size());
  if (has_labels) {
    label_begin_.push_back(static_cast<uint32_t>(labels_.size()));
  } else {
    label_begin_.clear();
  }

  const ops::BatchPlan plan{.n_rows = static_cast<uint32_t>(tokens_.size()),
                            .tokens = tokens_,
                            .positions = positions_,
                            .row_sequence = row_sequence_,
                            .sequences = spans_,
                            .output_rows = output_rows_,
                            .label_begin = label_begin_,
                            .labels = labels_,
                            .embeddings = embeddings_};
  backend_->begin_step(plan);
  model_->forward(*backend_, !output_rows_.empty());
  backend_->end_step();

  report_selections(items);
  report_logits(items);
  for (StepItem& item : items) item.sequence->commit(item.tokens);
}

void Core::report_logits(std::span<StepItem> items) {
  int64_t row = 0;
  for (StepItem& item : items) {
    for (uint32_t output = item.first_output; output < item.tokens.size(); ++output) {
      std::span<const float> logits = backend_->read(model_->logits(), row++);
      const size_t n =
          item.labels.empty() ? static_cast<size_t>(model_->facts().n_vocab) : item.labels.size();
      if (item.on_logits) item.on_logits(output, logits.first(n));
    }
  }
}

void Core::report_selections(std::span<StepItem> items) {
  uint32_t first_row = 0;
  for (StepItem& item : items) {
    const auto n = static_cast<uint32_t>(item.tokens.size());
    for (uint32_t i = 0; item.on_selection && i < n; ++i) {
      uint32_t layer = 0;
      const std::vector<ops::KvLayerShape>& layers = model_->facts().kv_layers;
      for (size_t kv_layer = 0; kv_layer < layers.size(); ++kv_layer) {
        if (!layers[kv_layer].index.valid()) continue;
        item.on_selection(
            i, layer++,
            backend_->selected_positions(static_cast<int32_t>(kv_layer), first_row + i));
      }
    }
    first_row += n;
  }
}

void Core::fill_random(reuse::Sequence& sequence, uint32_t n_tokens, uint64_t seed) {
  const auto n_vocab = static_cast<uint64_t>(model_->facts().n_vocab);
  std::vector<int32_t> tokens(n_tokens);
  uint64_t state = seed;
  for (int32_t& token : tokens) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<int32_t>((state >> 33) % n_vocab);
  }
  backend_->fill_random(sequence.span(0, n_tokens), seed);
  sequence.commit(tokens);
}

}  // namespace okibi::engine
