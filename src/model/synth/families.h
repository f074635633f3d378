// One function per family: its keys and tensors from the numbers of one model. Private to
// model/synth.
#pragma once

#include <cstdint>
#include <vector>

#include "model/synth/plan.h"

namespace okibi::model::synth {

struct LlamaShape {
  uint64_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_ctx;
  float rope_base;
};
SynthPlan plan_llama(const LlamaShape& shape);

struct Lfm2Shape {
  uint64_t d_model, n_heads, d_ff;
  bool is_first_generation;  // decides the chat template
  uint64_t n_layers = 16, n_kv_heads = 8, head_dim = 64, n_vocab = 65536, n_ctx = 128000;
  std::vector<uint64_t> attention_layers = {2, 5, 8, 10, 12, 14};
};
SynthPlan plan_lfm2(const Lfm2Shape& shape);

struct Siglip2Shape {
  uint64_t d_model, n_layers, n_heads, d_ff, projector_hidden, d_text;
};
SynthPlan plan_siglip2(const Siglip2Shape& shape);

// What qwen35 and qwen4exp have in common.
struct QwenShape {
  uint64_t n_layers, d_model, n_heads, n_kv_heads, n_ctx, n_vocab;
  uint64_t head_dim = 256, n_rot = 64;
  uint64_t delta_key_heads = 16, delta_value_heads, delta_head_dim = 128;
};
SynthPlan plan_qwen35(const QwenShape& shape, uint64_t d_ff);

struct FlashNextShape {
  QwenShape base;
  uint64_t n_experts, n_experts_used, d_expert = 640;
  uint64_t n_streams = 4, low_rank = 320;
  uint64_t index_heads = 4, index_head_dim = 128, index_budget = 2048, block_tokens = 4;
  // The sixteen head vocabularies of the n-gram table are the primes that follow this number.
  uint64_t ngram_vocab_base;
  bool tiny_vocabulary;
};
SynthPlan plan_flash_next(const FlashNextShape& shape);

// The constants of the hashed n-gram embedding, as the published checkpoint derives them.
struct NgramConstants {
  std::vector<uint64_t> multipliers;  // 3
  std::vector<uint64_t> vocab_sizes;  // 16 consecutive primes above `base`
  std::vector<uint64_t> offsets;      // their running sums
  uint64_t n_rows;                    // the sum, up to a multiple of 128
};
NgramConstants ngram_constants(uint64_t n_vocab, uint64_t base);

// Keys of general.*; the writer adds the type label.
void add_general_keys(SynthPlan& plan, const char* architecture, const char* type);

}  // namespace okibi::model::synth
