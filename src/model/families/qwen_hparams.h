// Hyper-parameters of the hybrid Qwen families: what `qwen35` and `qwen4exp` have in common, and
// what only `qwen4exp` has. Keys, defaults and checks: spec of qwen4exp, sections 1.2 and 3.11.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "model/hparams.h"
#include "ops/ops.h"

namespace okibi::model {

// Gated DeltaNet in most layers, gated attention in the others.
struct QwenHparams {
  Hparams h;
  int32_t n_trunk = 0;             // layers before the blocks that predict further tokens
  std::vector<bool> is_recurrent;  // (n_trunk)
  int32_t n_key_heads = 0, n_value_heads = 0, delta_dim = 0, n_taps = 0;
  int32_t n_heads = 0, n_kv_heads = 0;  // of every attention layer
  float attention_scale = 0;
};
Result<QwenHparams> read_qwen_hparams(const gguf::File& file);

// The hashed n-gram embedding of one layer.
struct NgramHparams {
  int32_t layer = -1;  // none
  int32_t n_orders = 0, heads_per_order = 0, n_taps = 0, dilation = 0;
  int32_t reset_token = 0;
  int64_t row_width = 0;
  std::vector<uint64_t> multipliers, vocab_sizes, offsets;
  int64_t n_heads() const { return int64_t{n_orders} * heads_per_order; }
};

struct FlashNextHparams {
  QwenHparams q;
  int32_t n_streams = 0;
  int64_t low_rank = 0;
  int64_t n_experts = 0, n_experts_used = 0, d_expert = 0, d_shared = 0;
  float expert_scale = 1.0f;
  ops::IndexShape index;  // invalid: attention is dense
  int32_t n_index_heads = 0;
  NgramHparams ngram;
};
Result<FlashNextHparams> read_flash_next_hparams(const gguf::File& file);

}  // namespace okibi::model
