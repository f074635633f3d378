// What the operations of long-context families take: attention over selected blocks, the delta
// rule, experts, hashed n-grams. Formulas: spec of Qwen3.8-Flash-Next ("qwen4exp"), sections 3 and
// 4; the operations themselves stand in ops.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/handles.h"
#include "tensor/dtype.h"

namespace okibi::ops {

// The index of a sparse attention layer: for every block of `block_tokens` positions one pooled key
// of `dim` values; a query attends to the `budget / block_tokens` best blocks and the open one.
struct IndexShape {
  int32_t dim = 0;  // 0: the layer has no index, queries attend to everything before them
  int32_t block_tokens = 0;
  int32_t budget = 0;  // tokens, a multiple of block_tokens
  bool valid() const { return dim > 0; }
};

// Work that the engine avoids, for measuring what avoiding it is worth. No switch changes a bit.
struct SparseSwitches {
  // Off: the keys of all positions are kept as they were projected and every step pools them anew.
  bool keep_pooled = true;
  // Off: every key and value before the query is read, those of other blocks weigh nothing.
  bool attend_selected = true;
  // Off: each block's score is given to its cells and the best cells are selected.
  bool select_blocks = true;
};

// How a layer's index keys are finished: pooled as the mean of a block's keys, normed, rotated by
// the position of the block's first token.
struct IndexKeys {
  int32_t kv_layer = 0;
  // In the slot: (block_tokens - 1) * dim floats, the keys of the open block, oldest first.
  uint64_t state_offset = 0;
  Vector gamma;  // (dim)
  float eps = 0;
  Rope rope;  // of heads of dim values
};

// A Gated DeltaNet layer. Per value head h with key head h mod n_key_heads, and S of (head_dim
// keys, head_dim values):
//   k' = k / sqrt(sum k^2 + 1e-6),  q' = q / sqrt(sum q^2 + 1e-6) / sqrt(head_dim)
//   g = a[h] * softplus(alpha[h] + dt_bias[h]),  S = exp(g) S
//   r = sigmoid(beta[h]) * (v - S^T k'),  S += k' r^T,  out = S^T q'
struct DeltaRule {
  uint64_t state_offset = 0;  // in the slot: (n_value_heads, head_dim keys, head_dim values) floats
  int32_t n_key_heads = 0, n_value_heads = 0, head_dim = 0;
  Vector a, dt_bias;  // (n_value_heads)
};

// The routed part of a mixture of experts: `down(silu(gate x) * up x)` of n_used of n_matrices.
struct Experts {
  Weight gate, up;  // n_in = d_model, n_out = d_ff, n_matrices experts
  Weight down;      // n_in = d_ff, n_out = d_model
  int32_t n_used = 0;
  float scale = 1.0f;  // multiplies every weight of an expert
};
// Memory for `moe` with up to max_rows rows.
struct ExpertsConfig {
  int64_t max_rows = 0;
  int32_t n_used = 0, n_experts = 0;
  int64_t d_model = 0, d_ff = 0;
};

// The table of a hashed n-gram embedding. Its rows stay where they are (a mapped file) and are read
// when a token wants them. For the token at t of a sequence: c_0 its id, c_s the id at t - s; where
// there is none, or any id at t - 1 .. t - s is reset_token, c_s = reset_token.
//   x_2 = c_0 m_0 xor c_1 m_1,  x_3 = x_2 xor c_2 m_2, ...  in 64 bits
// Head h of order n = 2 + h / heads_per_order reads its row x_n mod n_rows.
struct NgramTableSource {
  DType type = DType::kF32;
  int64_t row_width = 0;  // values
  int32_t heads_per_order = 0;
  int32_t reset_token = 0;
  std::vector<uint64_t> multipliers;  // one per order and one: m_0, m_1, ...
  struct Head {
    const uint8_t* rows = nullptr;  // n_rows of row_bytes(type, row_width)
    uint64_t n_rows = 0;            // the head's vocabulary
  };
  std::vector<Head> heads;  // (multipliers.size() - 1) * heads_per_order
  // Asks the system to read bytes [p, p + n) of the table soon; may be empty.
  std::function<void(const uint8_t* p, uint64_t n)> prefetch;
};
struct NgramTable {
  int32_t id = -1;
  int64_t cols = 0;  // heads * row_width
};

// What becomes of the gathered n-gram rows, per residual stream c of d_model values:
//   d_c = norm(key_c; key_norm) . norm(R_c; query_norm) / sqrt(d_model)
//   w_c = sigmoid(sign(d_c) sqrt(max(|d_c|, 1e-6))),  val_c = w_c * value
//   nn_c = norm(val_c; conv_norm),  R_c += val_c + silu(sum_j kernel[j] nn_c at t - dilation
//   (K-1-j))
struct NgramMix {
  // In the slot: (n_taps - 1) * dilation rows of n_streams * d_model floats, the last nn, oldest
  // first.
  uint64_t state_offset = 0;
  int32_t n_streams = 0, n_taps = 0, dilation = 0;
  Vector key_norm, query_norm, conv_norm;  // (n_streams * d_model)
  Vector kernel;                           // (n_streams * d_model, n_taps), oldest first
  float eps = 0;
};

// The function on a gate before it multiplies.
enum class GateKind : uint8_t { kSigmoid, kSilu };

}  // namespace okibi::ops
