// Architecture `llama`: Llama 2 and 3, SmolLM2, Mistral. Pre-norm transformer, grouped-query
// attention with rotation of adjacent pairs, gated feed-forward.
// Source of tensors and formulas: spec of the GGUF format, section on keys.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/families.h"
#include "model/families/parts.h"

namespace okibi::model {
namespace {

class Llama final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(WeightLoader& loader);

  Status add_activations(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) override {
    OKIBI_ASSIGN_OR_RETURN(act_, add_activation_rows(backend, widths_, max_rows, max_outputs));
    rope_ = backend.add_rope(rope_config_);
    return ok_status();
  }
  uint64_t activation_bytes(int64_t max_rows, int64_t max_outputs) const override {
    return widths_.bytes(max_rows, max_outputs);
  }

  void forward(ops::Backend& b, bool with_outputs) const override {
    b.set_layer(-1, "embedding");
    b.embed(embedding_, act_.x);
    b.put_embeddings(act_.x);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      b.set_layer(static_cast<int32_t>(i), "attention");
      b.rms_norm(act_.x, layer.attn_norm, eps_, act_.normed);
      if (i + 1 < layers_.size()) {
        run_attention(b, layer.attention, rope_, eps_, act_);
      } else {
        store_keys_values(b, layer.attention, rope_, eps_, act_);
        if (!with_outputs) return;
        const ops::Rows rows[] = {act_.x, act_.normed};
        b.keep_tails(0, rows);
        run_queries(b, layer.attention, rope_, eps_, act_);
      }
      b.set_layer(static_cast<int32_t>(i), "feed_forward");
      b.rms_norm(act_.x, layer.ffn_norm, eps_, act_.normed);
      run_feed_forward(b, layer.ffn, act_);
    }
    b.set_layer(-1, "output");
    b.gather_outputs(act_.x, act_.output);
    b.rms_norm(act_.output, output_norm_, eps_, act_.output);
    b.logits(act_.output, output_, act_.logits);
  }
  ops::Rows logits() const override { return act_.logits; }

 private:
  struct Layer {
    ops::Vector attn_norm, ffn_norm;
    Attention attention;
    FeedForward ffn;
  };

  float eps_ = 0;
  ops::Weight embedding_, output_;
  ops::Vector output_norm_;
  std::vector<Layer> layers_;
  ActivationWidths widths_;
  Activations act_;
  ops::RopeConfig rope_config_;
  ops::Rope rope_;
};

Status check_supported(const gguf::File& file, const Hparams& h) {
  if (file.has(h.arch + ".expert_count")) {
    OKIBI_ASSIGN_OR_RETURN(uint32_t n_experts, file.get_u32(h.arch + ".expert_count"));
    if (n_experts > 0) {
      return unsupported(
          fmt::format("llama.expert_count: found {}, this build runs dense models", n_experts));
    }
  }
  OKIBI_ASSIGN_OR_RETURN(std::string_view scaling,
                         file.get_string_or(h.arch + ".rope.scaling.type", "none"));
  if (scaling != "none") {
    return unsupported(fmt::format(
        "llama.rope.scaling.type: found \"{}\", this build runs unscaled rotations", scaling));
  }
  for (int32_t i = 0; i < h.n_layers; ++i) {
    if (h.n_heads[i] != h.n_heads[0] || h.n_kv_heads[i] != h.n_kv_heads[0] || h.n_kv_heads[i] < 1 ||
        h.d_ff[i] < 1 || h.d_ff[i] != h.d_ff[0]) {
      return bad_data(
          fmt::format("llama: layer {} differs from layer 0 in its heads or its "
                      "feed-forward width, or has none",
                      i));
    }
  }
  return ok_status();
}

Result<std::unique_ptr<Model>> Llama::load(WeightLoader& loader) {
  const gguf::File& file = loader.file();
  OKIBI_ASSIGN_OR_RETURN(Hparams h, read_hparams(file));
  OKIBI_RETURN_IF_ERROR(check_supported(file, h));
  const int32_t n_heads = h.n_heads[0], n_kv_heads = h.n_kv_heads[0];
  if (h.k_dim == 0) h.k_dim = static_cast<int32_t>(h.d_model / n_heads);
  if (h.v_dim == 0) h.v_dim = static_cast<int32_t>(h.d_model / n_heads);
  if (h.n_rot == 0) h.n_rot = h.k_dim;
  if (h.n_rot % 2 != 0 || h.n_rot > h.k_dim) {
    return bad_data(
        fmt::format("llama.rope.dimension_count: found {}, expected an even number up "
                    "to the head's {} values",
                    h.n_rot, h.k_dim));
  }

  auto m = std::make_unique<Llama>();
  m->eps_ = h.norm_eps;
  OKIBI_ASSIGN_OR_RETURN(m->embedding_, loader.table("token_embd", h.d_model, h.n_vocab));
  m->output_ = m->embedding_;
  for (int32_t i = 0; i < h.n_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    Layer layer;
    OKIBI_ASSIGN_OR_RETURN(layer.attn_norm, loader.vector(prefix + "attn_norm.weight", h.d_model));
    OKIBI_ASSIGN_OR_RETURN(layer.attention, load_attention(loader, prefix, h.d_model, n_heads,
                                                           n_kv_heads, h.k_dim, h.v_dim, false));
    layer.attention.kv_layer = i;
    OKIBI_ASSIGN_OR_RETURN(layer.ffn_norm, loader.vector(prefix + "ffn_norm.weight", h.d_model));
    OKIBI_ASSIGN_OR_RETURN(layer.ffn, load_feed_forward(loader, prefix, h.d_model, h.d_ff[i]));
    m->layers_.push_back(layer);
    m->facts_.kv_layers.push_back({n_kv_heads, h.k_dim, h.v_dim});
    m->facts_.query_heads.push_back({n_heads, 0});
  }
  OKIBI_ASSIGN_OR_RETURN(m->output_norm_, loader.vector("output_norm.weight", h.d_model));
  if (loader.has("output.weight")) {
    OKIBI_ASSIGN_OR_RETURN(m->output_, loader.table("output", h.d_model, h.n_vocab));
  }
  m->rope_config_ = {.style = ops::RopeStyle::kAdjacent,
                     .head_dim = h.k_dim,
                     .n_rot = h.n_rot,
                     .freq_base = h.rope_freq_base};
  if (loader.has("rope_freqs.weight")) {
    OKIBI_ASSIGN_OR_RETURN(m->rope_config_.freq_divisors,
                           loader.floats("rope_freqs.weight", h.n_rot / 2));
  }
  m->widths_ = {.d_model = h.d_model,
                .q = int64_t{n_heads} * h.k_dim,
                .k = int64_t{n_kv_heads} * h.k_dim,
                .v = int64_t{n_kv_heads} * h.v_dim,
                .mixed = int64_t{n_heads} * h.v_dim,
                .d_ff = h.d_ff[0],
                .n_vocab = h.n_vocab};
  fill_facts(m->facts_, h, loader, m->embedding_, m->output_);
  const Layer& last = m->layers_.back();
  count_tail(m->facts_, loader, {last.attention.q, last.attention.output});
  count_tail(m->facts_, loader, {last.ffn.gate, last.ffn.up, last.ffn.down});
  m->facts_.query_heads.back().only_tails = true;
  return std::unique_ptr<Model>(std::move(m));
}

}  // namespace

Result<std::unique_ptr<Model>> load_llama(WeightLoader& loader) {
  return Llama::load(loader);
}

}  // namespace okibi::model
