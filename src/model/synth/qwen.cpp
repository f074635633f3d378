// The qwen35 family (dense) and qwen4exp (Flash-Next): Gated DeltaNet in three layers of four,
// gated attention in the fourth.
#include "model/synth/families.h"
#include "model/synth/vocabulary.h"

namespace okibi::model::synth {
namespace {

constexpr uint64_t kConvTaps = 4;
constexpr uint64_t kAttentionPeriod = 4;

bool attends(uint64_t layer) {
  return (layer + 1) % kAttentionPeriod == 0;
}

void add_common_keys(SynthPlan& plan, const std::string& p, const QwenShape& s) {
  const uint64_t n_pairs = s.n_rot / 2;
  const auto section = [&](uint64_t extra) { return static_cast<int32_t>((n_pairs + extra) / 3); };
  plan.u32(p + "block_count", s.n_layers);
  plan.u32(p + "context_length", s.n_ctx);
  plan.u32(p + "embedding_length", s.d_model);
  plan.u32(p + "attention.head_count", s.n_heads);
  plan.u32(p + "attention.head_count_kv", s.n_kv_heads);
  plan.u32(p + "attention.key_length", s.head_dim);
  plan.u32(p + "attention.value_length", s.head_dim);
  plan.key(p + "attention.layer_norm_rms_epsilon", 1e-6f);
  plan.u32(p + "rope.dimension_count", s.n_rot);
  plan.key(p + "rope.dimension_sections",
           std::vector<int32_t>{section(2), section(1), section(0), 0});
  plan.key(p + "rope.freq_base", 1e7f);
  plan.u32(p + "ssm.conv_kernel", kConvTaps);
  plan.u32(p + "ssm.state_size", s.delta_head_dim);
  plan.u32(p + "ssm.group_count", s.delta_key_heads);
  plan.u32(p + "ssm.time_step_rank", s.delta_value_heads);
  plan.u32(p + "ssm.inner_size", s.delta_value_heads * s.delta_head_dim);
  plan.u32(p + "full_attention_interval", kAttentionPeriod);
  std::vector<bool> recurrent;
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) recurrent.push_back(!attends(layer));
  plan.key(p + "attention.recurrent_layers", std::move(recurrent));
}

// Each query head brings its output gate: twice the rows.
void add_attention(SynthPlan& plan, const std::string& p, const QwenShape& s) {
  const uint64_t q = s.n_heads * s.head_dim;
  const uint64_t kv = s.n_kv_heads * s.head_dim;
  plan.matrix(p + "attn_q.weight", {s.d_model, 2 * q});
  plan.matrix(p + "attn_k.weight", {s.d_model, kv});
  plan.matrix(p + "attn_v.weight", {s.d_model, kv});
  plan.matrix(p + "attn_output.weight", {q, s.d_model});
  plan.norm(p + "attn_q_norm.weight", s.head_dim);
  plan.norm(p + "attn_k_norm.weight", s.head_dim);
}

void add_delta_net(SynthPlan& plan, const std::string& p, const QwenShape& s) {
  const uint64_t key = s.delta_key_heads * s.delta_head_dim;
  const uint64_t value = s.delta_value_heads * s.delta_head_dim;
  const uint64_t channels = 2 * key + value;
  plan.matrix(p + "attn_qkv.weight", {s.d_model, channels});
  plan.matrix(p + "attn_gate.weight", {s.d_model, value});
  plan.floats(p + "ssm_conv1d.weight", {kConvTaps, channels}, 0.0f, 0.5f);
  plan.matrix(p + "ssm_beta.weight", {s.d_model, s.delta_value_heads});
  plan.matrix(p + "ssm_alpha.weight", {s.d_model, s.delta_value_heads});
  plan.floats(p + "ssm_dt.bias", {s.delta_value_heads}, 0.0f, 0.5f);
  // The decay must not grow: uniform in (-1.87, -0.13), always negative.
  plan.floats(p + "ssm_a", {s.delta_value_heads}, -1.0f, 0.5f);
  plan.norm(p + "ssm_norm.weight", s.delta_head_dim);
  plan.matrix(p + "ssm_out.weight", {value, s.d_model});
}

// The low-rank mixer of the residual streams; the one of the output injects nothing.
void add_hyper_connection(SynthPlan& plan, const std::string& stem, const FlashNextShape& s,
                          bool injects) {
  const uint64_t width = s.n_streams * s.base.d_model;
  plan.norm(stem + "_norm.weight", width);
  plan.matrix(stem + "_down.weight", {width, s.low_rank});
  plan.matrix(stem + "_up.weight", {s.low_rank, width});
  if (injects) plan.matrix(stem + "_inject.weight", {width, s.n_streams});
}

void add_experts(SynthPlan& plan, const std::string& p, const FlashNextShape& s) {
  const uint64_t d = s.base.d_model;
  plan.floats(p + "ffn_gate_inp.weight", {d, s.n_experts}, 0.0f, 0.03f);
  plan.matrix(p + "ffn_gate_exps.weight", {d, s.d_expert, s.n_experts});
  plan.matrix(p + "ffn_up_exps.weight", {d, s.d_expert, s.n_experts});
  plan.matrix(p + "ffn_down_exps.weight", {s.d_expert, d, s.n_experts});
  plan.floats(p + "ffn_gate_inp_shexp.weight", {d, 1}, 0.0f, 0.03f);
  plan.matrix(p + "ffn_gate_shexp.weight", {d, s.d_expert});
  plan.matrix(p + "ffn_up_shexp.weight", {d, s.d_expert});
  plan.matrix(p + "ffn_down_shexp.weight", {s.d_expert, d});
}

// The n-gram embedding's own tensors; d_ngram values are gathered per token.
void add_ngram(SynthPlan& plan, const std::string& p, const FlashNextShape& s, uint64_t d_ngram) {
  const uint64_t width = s.n_streams * s.base.d_model;
  plan.matrix(p + "ple_key.weight", {d_ngram, width});
  plan.matrix(p + "ple_value.weight", {d_ngram, s.base.d_model});
  plan.norm(p + "ple_norm_key.weight", width);
  plan.norm(p + "ple_norm_query.weight", width);
  plan.norm(p + "ple_norm_conv.weight", width);
  plan.floats(p + "ple_conv1d.weight", {kConvTaps, width}, 0.0f, 0.5f);
}

bool is_prime(uint64_t n) {
  if (n < 2) return false;
  for (uint64_t i = 2; i * i <= n; ++i) {
    if (n % i == 0) return false;
  }
  return true;
}

constexpr uint64_t kNgramSize = 3, kHeadsPerNgram = 8, kNgramLayer = 1;
constexpr uint64_t kNgramHeads = (kNgramSize - 1) * kHeadsPerNgram;

void add_flash_next_keys(SynthPlan& plan, const FlashNextShape& s, const NgramConstants& ngram,
                         uint64_t ngram_row) {
  const std::string p = "qwen4exp.";
  plan.u32(p + "expert_count", s.n_experts);
  plan.u32(p + "expert_used_count", s.n_experts_used);
  plan.u32(p + "expert_feed_forward_length", s.d_expert);
  plan.u32(p + "expert_shared_feed_forward_length", s.d_expert);
  plan.u32(p + "hyper_connection.count", s.n_streams);
  plan.u32(p + "hyper_connection.low_rank", s.low_rank);
  plan.u32(p + "attention.indexer.head_count", s.index_heads);
  plan.u32(p + "attention.indexer.key_length", s.index_head_dim);
  plan.u32(p + "attention.indexer.top_k", s.index_budget);
  std::vector<int32_t> ratios;
  for (uint64_t layer = 0; layer < s.base.n_layers; ++layer) {
    ratios.push_back(attends(layer) ? static_cast<int32_t>(s.block_tokens) : 0);
  }
  plan.key(p + "attention.compress_ratios", std::move(ratios));
  plan.key(p + "ple.layers", std::vector<int32_t>{static_cast<int32_t>(kNgramLayer)});
  plan.u32(p + "ple.ngram_size", kNgramSize);
  plan.u32(p + "ple.heads_per_ngram", kHeadsPerNgram);
  plan.u32(p + "ple.conv_kernel", kConvTaps);
  const QwenTokens tokens = qwen_tokens(s.base.n_vocab, s.tiny_vocabulary);
  plan.u32(p + "ple.eos_token_id", tokens.end_of_text);
  plan.u32(p + "ple.image_token_id", tokens.image);
  plan.u32(p + "embedding_length_per_layer_input", ngram_row);
  plan.key(p + "ple.layer_multipliers", ngram.multipliers);
  plan.key(p + "ple.head_offsets", ngram.offsets);
  plan.key(p + "ple.head_vocab_sizes", ngram.vocab_sizes);
}

}  // namespace

NgramConstants ngram_constants(uint64_t n_vocab, uint64_t base) {
  constexpr uint64_t kSeed = 1234, kGolden = 0x9e3779b97f4a7c15ull;
  NgramConstants out;
  // The product of a multiplier and a token stays below 2^63.
  const uint64_t half_bound = (((uint64_t{1} << 63) - 1) / n_vocab) / 2;
  for (uint64_t j = 0; j < kNgramSize; ++j) {
    uint64_t z = kSeed + (j + 1) * kGolden + kGolden;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    out.multipliers.push_back(2 * (z % half_bound) + 1);
  }
  uint64_t sum = 0;
  for (uint64_t candidate = base + 1; out.vocab_sizes.size() < kNgramHeads; ++candidate) {
    if (!is_prime(candidate)) continue;
    out.vocab_sizes.push_back(candidate);
    out.offsets.push_back(sum);
    sum += candidate;
  }
  out.n_rows = (sum + 127) / 128 * 128;
  return out;
}

SynthPlan plan_qwen35(const QwenShape& s, uint64_t d_ff) {
  SynthPlan plan;
  add_general_keys(plan, "qwen35", "model");
  add_common_keys(plan, "qwen35.", s);
  plan.u32("qwen35.feed_forward_length", d_ff);
  add_vocabulary_keys(plan, VocabularyKind::kQwen35, s.n_vocab);

  plan.matrix("token_embd.weight", {s.d_model, s.n_vocab}, SynthStorage::kEmbedding);
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    plan.norm(p + "attn_norm.weight", s.d_model);
    if (attends(layer)) {
      add_attention(plan, p, s);
    } else {
      add_delta_net(plan, p, s);
    }
    plan.norm(p + "post_attention_norm.weight", s.d_model);
    plan.matrix(p + "ffn_gate.weight", {s.d_model, d_ff});
    plan.matrix(p + "ffn_up.weight", {s.d_model, d_ff});
    plan.matrix(p + "ffn_down.weight", {d_ff, s.d_model});
  }
  plan.norm("output_norm.weight", s.d_model);
  return plan;
}

SynthPlan plan_flash_next(const FlashNextShape& s) {
  const uint64_t d = s.base.d_model;
  const uint64_t ngram_row = d / kNgramHeads;
  const NgramConstants ngram = ngram_constants(s.base.n_vocab, s.ngram_vocab_base);
  SynthPlan plan;
  add_general_keys(plan, "qwen4exp", "model");
  add_common_keys(plan, "qwen4exp.", s.base);
  add_flash_next_keys(plan, s, ngram, ngram_row);
  add_vocabulary_keys(plan, s.tiny_vocabulary ? VocabularyKind::kQwenTiny : VocabularyKind::kQwen38,
                      s.base.n_vocab);

  plan.matrix("token_embd.weight", {d, s.base.n_vocab}, SynthStorage::kEmbedding);
  plan.matrix("output.weight", {d, s.base.n_vocab}, SynthStorage::kEmbedding);
  plan.matrix("per_layer_token_embd.weight", {ngram_row, ngram.n_rows}, SynthStorage::kTable);
  add_hyper_connection(plan, "output_hc", s, false);
  for (uint64_t layer = 0; layer < s.base.n_layers; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    if (layer == kNgramLayer) add_ngram(plan, p, s, kNgramHeads * ngram_row);
    add_hyper_connection(plan, p + "hc_attn", s, true);
    if (attends(layer)) {
      add_attention(plan, p, s.base);
      plan.matrix(p + "indexer.q_proj.weight", {d, s.index_heads * s.index_head_dim});
      plan.matrix(p + "indexer.k_proj.weight", {d, s.index_head_dim});
      plan.norm(p + "indexer.q_norm.weight", s.index_head_dim);
      plan.norm(p + "indexer.k_norm.weight", s.index_head_dim);
    } else {
      add_delta_net(plan, p, s.base);
    }
    add_hyper_connection(plan, p + "hc_ffn", s, true);
    add_experts(plan, p, s);
  }
  return plan;
}

}  // namespace okibi::model::synth
