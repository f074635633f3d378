// What one token costs at a depth, part by part: bytes that decoding moves, operations of prefill;
// and from them how fast a deeper context can be at best. Arithmetic on a model's facts only.
#pragma once

#include <cstdint>

#include "okibi/engine.h"

namespace okibi::apps {

// Bytes of one decoded token: what must come from memory at least.
struct TokenBytes {
  double dense = 0;    // weights that every token reads, but the output matrix
  double experts = 0;  // of the experts used
  double output = 0;
  double state = 0;  // recurrent state, read and written
  double kv = 0;     // keys and values attended to; with attend_selected off, all
  // Pooled index keys of the blocks scored. With keep_pooled off also the keys of all positions and
  // the pooled ones written; with select_blocks off also scores and cells, written and read once.
  double index = 0;
  double total() const { return dense + experts + output + state + kv + index; }
};

// Operations of one token, two per multiply-add.
struct TokenOps {
  double matrices = 0;   // int8
  double attention = 0;  // float, of queries with the keys and values attended to
  double scores = 0;     // float, of index queries with pooled keys
  double floats() const { return attention + scores; }
};

// Means over `n_tokens` tokens in a row, of which the first sees n_before positions and itself.
TokenBytes decode_bytes(const ModelInfo& info, const SparseOptions& sparse, uint64_t n_before,
                        uint32_t n_tokens);
// The last n_outputs of the tokens have logits, and they alone pass through the tails of the last
// layers (the few rows in front of them that convolutions reach back to are not counted).
TokenOps token_ops(const ModelInfo& info, const SparseOptions& sparse, uint64_t n_before,
                   uint32_t n_tokens, uint32_t n_outputs);

// Positions that a query with n positions, its own among them, reads keys and values of.
uint64_t rows_attended(const AttentionInfo& layer, const SparseOptions& sparse, uint64_t n);
// Blocks whose pooled keys it is scored with: none while everything is attended to.
uint64_t blocks_scored(const AttentionInfo& layer, uint64_t n);

}  // namespace okibi::apps
