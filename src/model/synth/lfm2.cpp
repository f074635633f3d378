// The lfm2 family, short convolutions and attention mixed, and the vision file that stands beside
// its VL models (SigLIP2 and the projector).
#include <algorithm>

#include "model/synth/families.h"
#include "model/synth/vocabulary.h"

namespace okibi::model::synth {
namespace {

constexpr uint64_t kConvTaps = 3;

void add_lfm2_layer(SynthPlan& plan, const Lfm2Shape& s, uint64_t layer, bool attends) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const uint64_t q = s.n_heads * s.head_dim;
  const uint64_t kv = s.n_kv_heads * s.head_dim;
  const uint64_t d = s.d_model;
  plan.norm(p + "attn_norm.weight", d);
  if (attends) {
    plan.matrix(p + "attn_q.weight", {d, q});
    plan.matrix(p + "attn_k.weight", {d, kv});
    plan.matrix(p + "attn_v.weight", {d, kv});
    plan.matrix(p + "attn_output.weight", {q, d});
    plan.norm(p + "attn_q_norm.weight", s.head_dim);
    plan.norm(p + "attn_k_norm.weight", s.head_dim);
  } else {
    plan.matrix(p + "shortconv.in_proj.weight", {d, 3 * d});
    plan.floats(p + "shortconv.conv.weight", {kConvTaps, d}, 0.0f, 0.577f);
    plan.matrix(p + "shortconv.out_proj.weight", {d, d});
  }
  plan.norm(p + "ffn_norm.weight", d);
  plan.matrix(p + "ffn_gate.weight", {d, s.d_ff});
  plan.matrix(p + "ffn_up.weight", {d, s.d_ff});
  plan.matrix(p + "ffn_down.weight", {s.d_ff, d});
}

// A linear layer with bias, as every product of the vision tower is.
void add_biased(SynthPlan& plan, const std::string& stem, uint64_t n_in, uint64_t n_out) {
  plan.matrix(stem + ".weight", {n_in, n_out});
  plan.floats(stem + ".bias", {n_out}, 0.0f, 0.02f);
}

void add_layer_norm(SynthPlan& plan, const std::string& stem, uint64_t n) {
  plan.norm(stem + ".weight", n);
  plan.floats(stem + ".bias", {n}, 0.0f, 0.02f);
}

}  // namespace

SynthPlan plan_lfm2(const Lfm2Shape& s) {
  SynthPlan plan;
  add_general_keys(plan, "lfm2", "model");
  const auto attends = [&](uint64_t layer) {
    return std::find(s.attention_layers.begin(), s.attention_layers.end(), layer) !=
           s.attention_layers.end();
  };
  std::vector<int32_t> kv_heads;
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) {
    kv_heads.push_back(attends(layer) ? static_cast<int32_t>(s.n_kv_heads) : 0);
  }
  plan.u32("lfm2.block_count", s.n_layers);
  plan.u32("lfm2.context_length", s.n_ctx);
  plan.u32("lfm2.embedding_length", s.d_model);
  plan.u32("lfm2.feed_forward_length", s.d_ff);
  plan.u32("lfm2.attention.head_count", s.n_heads);
  plan.key("lfm2.attention.head_count_kv", std::move(kv_heads));
  plan.key("lfm2.rope.freq_base", 1e6f);
  plan.key("lfm2.attention.layer_norm_rms_epsilon", 1e-5f);
  plan.u32("lfm2.vocab_size", s.n_vocab);
  plan.u32("lfm2.shortconv.l_cache", kConvTaps);
  add_vocabulary_keys(plan, s.is_first_generation ? VocabularyKind::kLfm2 : VocabularyKind::kLfm25,
                      s.n_vocab);

  plan.matrix("token_embd.weight", {s.d_model, s.n_vocab}, SynthStorage::kEmbedding);
  plan.norm("token_embd_norm.weight", s.d_model);
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) {
    add_lfm2_layer(plan, s, layer, attends(layer));
  }
  return plan;
}

SynthPlan plan_siglip2(const Siglip2Shape& s) {
  constexpr uint64_t kPatch = 16, kPositions = 256, kUnshuffle = 2;
  SynthPlan plan;
  add_general_keys(plan, "clip", "mmproj");
  plan.key("clip.has_vision_encoder", true);
  plan.key("clip.projector_type", std::string("lfm2"));
  plan.key("clip.use_gelu", true);
  plan.u32("clip.vision.projection_dim", s.d_text);
  plan.u32("clip.vision.image_size", 256);  // what converters write; nothing reads it
  plan.u32("clip.vision.patch_size", kPatch);
  plan.u32("clip.vision.embedding_length", s.d_model);
  plan.u32("clip.vision.feed_forward_length", s.d_ff);
  plan.u32("clip.vision.block_count", s.n_layers);
  plan.u32("clip.vision.attention.head_count", s.n_heads);
  plan.key("clip.vision.attention.layer_norm_epsilon", 1e-6f);
  plan.key("clip.vision.image_mean", std::vector<float>(3, 0.5f));
  plan.key("clip.vision.image_std", std::vector<float>(3, 0.5f));
  plan.u32("clip.vision.projector.scale_factor", kUnshuffle);

  add_biased(plan, "mm.1", kUnshuffle * kUnshuffle * s.d_model, s.projector_hidden);
  add_biased(plan, "mm.2", s.projector_hidden, s.d_text);
  plan.floats("v.patch_embd.bias", {s.d_model}, 0.0f, 0.02f);
  plan.matrix("v.patch_embd.weight", {kPatch, kPatch, 3, s.d_model}, SynthStorage::kPatch);
  plan.tensors.back().std_dev = 0.036f;  // 1 / sqrt(16 * 16 * 3)
  plan.floats("v.position_embd.weight", {s.d_model, kPositions}, 0.0f, 0.1f);
  for (uint64_t layer = 0; layer < s.n_layers; ++layer) {
    const std::string p = "v.blk." + std::to_string(layer) + ".";
    add_layer_norm(plan, p + "ln1", s.d_model);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
      add_biased(plan, p + name, s.d_model, s.d_model);
    }
    add_layer_norm(plan, p + "ln2", s.d_model);
    add_biased(plan, p + "ffn_up", s.d_model, s.d_ff);
    add_biased(plan, p + "ffn_down", s.d_ff, s.d_model);
  }
  add_layer_norm(plan, "v.post_ln", s.d_model);
  return plan;
}

}  // namespace okibi::model::synth
