// What one forward step works on. The engine fills a BatchPlan before the step; the operations read
// it; a model's forward pass never looks inside, so that a GPU backend can record the pass once per
// shape and replay it.
#pragma once

#include <cstdint>
#include <span>

namespace okibi::ops {

using PageId = uint32_t;
using SlotId = uint32_t;

// The rows of one sequence in this step: n_rows consecutive tokens at positions n_past,
// n_past + 1, ... Its keys and values lie in `pages` (page i holds positions
// [i * page_tokens, (i + 1) * page_tokens)), which already cover n_past + n_rows tokens.
// Recurrent state is read from src_slot and written to dst_slot; both may be the same slot. Two
// sequences of one step share no dst_slot, and nobody's dst_slot is another's src_slot.
struct SequenceSpan {
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  uint32_t n_past = 0;
  SlotId src_slot = 0;
  SlotId dst_slot = 0;
  std::span<const PageId> pages;
  // Ids of the tokens before n_past, at least the last few of them where there are any.
  std::span<const int32_t> past_tokens;
};

struct BatchPlan {
  uint32_t n_rows = 0;                      // tokens in this step
  std::span<const int32_t> tokens;          // (n_rows) token ids
  std::span<const int32_t> positions;       // (n_rows)
  std::span<const uint32_t> row_sequence;   // (n_rows) index into sequences
  std::span<const SequenceSpan> sequences;  // in row order, covering all rows
  // Ascending rows whose logits are wanted; in a step of pictures the rows that join_rows joins, in
  // its order.
  std::span<const uint32_t> output_rows;
  // When not empty: output i wants only the rows labels[label_begin[i] .. label_begin[i + 1]) of
  // the output matrix. (n_outputs + 1) entries.
  std::span<const uint32_t> label_begin;
  std::span<const int32_t> labels;
  // Empty, or (n_rows) pointers: where one is not null, the row enters the model as these d_model
  // values (a projected picture row) and not as its token's row of the embedding table.
  std::span<const float* const> embeddings;
};

}  // namespace okibi::ops
