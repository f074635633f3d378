// Architecture `qwen35`: dense Qwen3.5. Gated DeltaNet in most layers, gated attention over
// everything in the others, a gated feed-forward in each.
// Source of tensors and formulas: spec of qwen4exp, section 3.11.
#include <fmt/format.h>

#include "model/families/families.h"
#include "model/families/parts.h"
#include "model/families/qwen_parts.h"

namespace okibi::model {
namespace {

class Qwen35 final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(WeightLoader& loader);

  Status add_activations(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) override {
    mixers_.add_ropes(backend, q_.h, {});
    return rows_.add(backend, max_rows, max_outputs);
  }
  uint64_t activation_bytes(int64_t max_rows, int64_t max_outputs) const override {
    return rows_.bytes(max_rows, max_outputs);
  }

  void forward(ops::Backend& b, bool with_outputs) const override {
    b.set_layer(-1, "embedding");
    b.embed(embedding_, act_.x);
    b.put_embeddings(act_.x);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const bool is_recurrent = q_.is_recurrent[i];
      b.set_layer(static_cast<int32_t>(i), is_recurrent ? "delta_net" : "attention");
      b.rms_norm(act_.x, layer.mixer_norm, mixers_.eps, act_.normed);
      if (is_recurrent) {
        run_delta_net(b, layer.delta, mixers_, act_.normed);
        b.project_add(mixers_.delta, layer.delta.output, act_.x);
      } else {
        if (i + 1 < layers_.size()) {
          run_gated_attention(b, layer.attention, mixers_, act_.normed);
        } else {
          store_keys_values(b, layer.attention, mixers_, act_.normed);
          if (!with_outputs) return;
          const ops::Rows rows[] = {act_.x, act_.normed};
          b.keep_tails(0, rows);
          run_gated_queries(b, layer.attention, mixers_, act_.normed);
        }
        b.project_add(mixers_.attended, layer.attention.output, act_.x);
      }
      b.set_layer(static_cast<int32_t>(i), "feed_forward");
      b.rms_norm(act_.x, layer.ffn_norm, mixers_.eps, act_.normed);
      run_feed_forward(b, layer.ffn, act_);
    }
    if (!with_outputs) return;
    b.set_layer(-1, "output");
    b.gather_outputs(act_.x, act_.output);
    b.rms_norm(act_.output, output_norm_, mixers_.eps, act_.output);
    b.logits(act_.output, output_, act_.logits);
  }
  ops::Rows logits() const override { return act_.logits; }

 private:
  struct Layer {
    ops::Vector mixer_norm, ffn_norm;
    DeltaNet delta;
    GatedAttention attention;
    FeedForward ffn;
  };

  Result<Layer> load_layer(WeightLoader& loader, int32_t index);
  void plan_rows();

  QwenHparams q_;
  ops::Weight embedding_, output_;
  ops::Vector output_norm_;
  std::vector<Layer> layers_;
  RowsPlan rows_;
  Activations act_;
  QwenMixers mixers_;
};

Result<Qwen35::Layer> Qwen35::load_layer(WeightLoader& loader, int32_t index) {
  const std::string prefix = fmt::format("blk.{}.", index);
  const Hparams& h = q_.h;
  Layer layer;
  OKIBI_ASSIGN_OR_RETURN(layer.mixer_norm, loader.vector(prefix + "attn_norm.weight", h.d_model));
  if (q_.is_recurrent[static_cast<size_t>(index)]) {
    OKIBI_ASSIGN_OR_RETURN(layer.delta, load_delta_net(loader, prefix, q_, &facts_));
  } else {
    OKIBI_ASSIGN_OR_RETURN(layer.attention,
                           load_gated_attention(loader, prefix, q_, {}, 0, &facts_));
  }
  OKIBI_ASSIGN_OR_RETURN(layer.ffn_norm,
                         loader.vector(prefix + "post_attention_norm.weight", h.d_model));
  OKIBI_ASSIGN_OR_RETURN(layer.ffn, load_feed_forward(loader, prefix, h.d_model, h.d_ff[0]));
  return layer;
}

void Qwen35::plan_rows() {
  const Hparams& h = q_.h;
  rows_.row(&act_.x, h.d_model);
  rows_.row(&act_.normed, h.d_model);
  rows_.row(&act_.gate, h.d_ff[0]);
  rows_.row(&act_.up, h.d_ff[0]);
  mixers_.plan_rows(q_, {}, 0, &rows_);
  mixers_.delta_gate = ops::GateKind::kSilu;
  rows_.output(&act_.output, h.d_model);
  rows_.output(&act_.logits, h.n_vocab);
}

Result<std::unique_ptr<Model>> Qwen35::load(WeightLoader& loader) {
  auto m = std::make_unique<Qwen35>();
  OKIBI_ASSIGN_OR_RETURN(m->q_, read_qwen_hparams(loader.file()));
  const Hparams& h = m->q_.h;
  for (int32_t i = 0; i < m->q_.n_trunk; ++i) {
    if (h.d_ff[static_cast<size_t>(i)] < 1 || h.d_ff[static_cast<size_t>(i)] != h.d_ff[0]) {
      return bad_data(
          fmt::format("qwen35.feed_forward_length: layer {} has width {}, layer 0 has {}; expected "
                      "one positive width",
                      i, h.d_ff[static_cast<size_t>(i)], h.d_ff[0]));
    }
  }
  OKIBI_ASSIGN_OR_RETURN(m->embedding_, loader.table("token_embd", h.d_model, h.n_vocab));
  for (int32_t i = 0; i < m->q_.n_trunk; ++i) {
    OKIBI_ASSIGN_OR_RETURN(Layer layer, m->load_layer(loader, i));
    m->layers_.push_back(layer);
  }
  OKIBI_ASSIGN_OR_RETURN(m->output_norm_, loader.vector("output_norm.weight", h.d_model));
  m->output_ = m->embedding_;
  if (loader.has("output.weight")) {
    OKIBI_ASSIGN_OR_RETURN(m->output_, loader.table("output", h.d_model, h.n_vocab));
  }
  m->plan_rows();
  fill_facts(m->facts_, h, loader, m->embedding_, m->output_);
  m->facts_.n_layers = m->q_.n_trunk;
  if (const Layer& last = m->layers_.back(); !m->q_.is_recurrent[m->layers_.size() - 1]) {
    count_tail(m->facts_, loader, {last.attention.q, last.attention.gate, last.attention.output});
    count_tail(m->facts_, loader, {last.ffn.gate, last.ffn.up, last.ffn.down});
    m->facts_.query_heads.back().only_tails = true;
  }
  return std::unique_ptr<Model>(std::move(m));
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen35(WeightLoader& loader) {
  return Qwen35::load(loader);
}

}  // namespace okibi::model
