// Core: the backend, the model and the memory of all sequences, and the one function that moves
// them forward by a step. Engine thread only, except where it says "immutable". The order in which
// things are declared is the order in which they depend on each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "okibi/engine.h"
#include "okibi/status.h"
#include "ops/ops.h"
#include "reuse/page_pool.h"
#include "reuse/prefix_cache.h"
#include "reuse/sequence.h"
#include "reuse/slot_pool.h"

namespace okibi::engine {

// One sequence's share of a step.
struct StepItem {
  reuse::Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;
  // Empty, or beside `tokens`: rows instead of the tokens' embeddings where not null.
  std::span<const float* const> embeddings;
  // Output rows wanted: the tokens from this index on (tokens.size(): none).
  uint32_t first_output = 0;
  // When not empty, every output of this item wants only these rows of the output matrix. In one
  // step either all items with outputs have labels or none has.
  std::span<const TokenId> labels;
  // Called for each output in order: index into tokens, logits (n_vocab or labels.size()).
  std::function<void(uint32_t index, std::span<const float> logits)> on_logits;
  // Called for each token and layer that selects blocks, in order: index into tokens, which of
  // those layers, positions.
  std::function<void(uint32_t index, uint32_t layer, std::span<const uint32_t> positions)>
      on_selection;
};

class Core {
 public:
  struct Sizes {
    uint32_t n_ctx = 0;
    uint32_t max_batch_rows = 0;
    uint32_t max_outputs = 0;  // output rows per step
    uint32_t n_pages = 0;
    uint32_t n_slots = 0;
    int32_t page_tokens = 64;
    ops::KvType kv_type = ops::KvType::kF16;
    ops::SparseSwitches sparse;
    uint64_t state_cache_bytes = 0;  // of kept prefixes

    ops::KvConfig kv_config(const model::ModelFacts& facts) const {
      return {.layers = facts.kv_layers,
              .type = kv_type,
              .sparse = sparse,
              .page_tokens = page_tokens,
              .max_pages = n_pages};
    }
  };

  // The model's weights are already in the backend; this adds caches and activation buffers.
  static Result<std::unique_ptr<Core>> create(std::unique_ptr<ops::Backend> backend,
                                              std::unique_ptr<model::Model> model,
                                              const Sizes& sizes);

  // Immutable.
  const Sizes& sizes() const { return sizes_; }
  const model::Model& model() const { return *model_; }
  const std::string& numeric_identity() const { return identity_; }

  ops::Backend& backend() { return *backend_; }
  reuse::Sequence new_sequence() const { return reuse::Sequence(pools_); }
  uint32_t n_free_pages() const { return pages_->n_free(); }
  uint32_t n_free_slots() const { return slots_->n_free(); }

  reuse::PrefixCache& prefixes() { return *prefixes_; }

  // Checks that the context holds n_more tokens, then takes the memory (Sequence::prepare); kept
  // prefixes give way.
  Status prepare(reuse::Sequence& sequence, uint32_t n_more);
  // Runs prepared items as one batch: at most max_batch_rows tokens and max_outputs outputs. Cannot
  // fail. Appends the tokens to their sequences.
  void run_step(std::span<StepItem> items);
  // Appends tokens with random keys, values and state to a prepared sequence
  // (Session::fill_random).
  void fill_random(reuse::Sequence& sequence, uint32_t n_tokens, uint64_t seed);

 private:
  void report_selections(std::span<StepItem> items);
  void report_logits(std::span<StepItem> items);

  Core() = default;

  Sizes sizes_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<reuse::PagePool> pages_;
  std::unique_ptr<reuse::SlotPool> slots_;
  reuse::Pools pools_;
  std::unique_ptr<reuse::PrefixCache> prefixes_;  // its sequences go before the pools
  std::string identity_;

  // The plan's arrays, kept so that a step allocates nothing once they have grown.
  std::vector<int32_t> tokens_, positions_, labels_;
  std::vector<uint32_t> row_sequence_, output_rows_, label_begin_;
  std::vector<ops::SequenceSpan> spans_;
  std::vector<const float*> embeddings_;
};

}  // namespace okibi::engine
