// The llama family: keys and tensors of one plain transformer with tied embeddings.
#include "model/synth/families.h"
#include "model/synth/vocabulary.h"

namespace okibi::model::synth {

SynthPlan plan_llama(const LlamaShape& s) {
  SynthPlan plan;
  add_general_keys(plan, "llama", "model");
  plan.u32("llama.block_count", s.n_layers);
  plan.u32("llama.context_length", s.n_ctx);
  plan.u32("llama.embedding_length", s.d_model);
  plan.u32("llama.feed_forward_length", s.d_ff);
  plan.u32("llama.attention.head_count", s.n_heads);
  plan.u32("llama.attention.head_count_kv", s.n_kv_heads);
  plan.u32("llama.rope.dimension_count", s.head_dim);
  plan.key("llama.rope.freq_base", s.rope_base);
  plan.key("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  plan.u32("llama.vocab_size", s.n_vocab);
  add_vocabulary_keys(plan, VocabularyKind::kSmolLm2, s.n_vocab);

  const uint64_t q = s.n_heads * s.head_dim;
  const uint64_t kv = s.n_kv_heads * s.head_dim;
  plan.matrix("token_embd.weight", {s.d_model, s.n_vocab}, SynthStorage::kEmbedding);
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    plan.norm(p + "attn_norm.weight", s.d_model);
    plan.matrix(p + "attn_q.weight", {s.d_model, q});
    plan.matrix(p + "attn_k.weight", {s.d_model, kv});
    plan.matrix(p + "attn_v.weight", {s.d_model, kv});
    plan.matrix(p + "attn_output.weight", {q, s.d_model});
    plan.norm(p + "ffn_norm.weight", s.d_model);
    plan.matrix(p + "ffn_gate.weight", {s.d_model, s.d_ff});
    plan.matrix(p + "ffn_up.weight", {s.d_model, s.d_ff});
    plan.matrix(p + "ffn_down.weight", {s.d_ff, s.d_model});
  }
  plan.norm("output_norm.weight", s.d_model);
  return plan;
}

}  // namespace okibi::model::synth
