// Architecture `qwen4exp`: Qwen3.8-Flash-Next. Four residual streams joined by hyper-connections;
// Gated DeltaNet in most layers, gated attention over selected blocks in the others, experts in
// each; one layer adds a hashed n-gram embedding. Blocks behind the trunk that predict further
// tokens are checked and skipped.
// Source of tensors and formulas: spec of qwen4exp, sections 1 to 4.
#include <fmt/format.h>

#include "model/families/families.h"
#include "model/families/flash_next_parts.h"
#include "model/families/parts.h"
#include "model/families/qwen_parts.h"
#include "ops/experts_layout.h"

namespace okibi::model {
namespace {

class FlashNext final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(WeightLoader& loader);

  Status add_activations(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) override {
    OKIBI_RETURN_IF_ERROR(backend.set_experts(experts_config(max_rows)));
    mixers_.add_ropes(backend, f_.q.h, f_.index);
    return rows_.add(backend, max_rows, max_outputs);
  }
  uint64_t activation_bytes(int64_t max_rows, int64_t max_outputs) const override {
    return rows_.bytes(max_rows, max_outputs) + ops::experts_bytes(experts_config(max_rows));
  }

  void forward(ops::Backend& b, bool with_outputs) const override {
    b.set_layer(-1, "embedding");
    if (f_.ngram.layer >= 0) b.ngram_prefetch(ngram_.table);
    b.embed(embedding_, x_);
    b.put_embeddings(x_);
    b.spread_streams(x_, streams_);
    for (size_t i = 0; i < layers_.size(); ++i) forward_layer(b, static_cast<int32_t>(i));
    if (!with_outputs) return;
    b.set_layer(-1, "output");
    b.gather_outputs(streams_, output_streams_);
    run_hyper_connection(b, output_hc_, f_.n_streams, mixers_.eps, output_streams_, output_rows_,
                         output_x_);
    b.logits(output_x_, output_, logits_);
  }
  ops::Rows logits() const override { return logits_; }

 private:
  struct Layer {
    HyperConnection mixer_hc, ffn_hc;
    DeltaNet delta;
    GatedAttention attention;
    ExpertLayer ffn;
  };

  void forward_layer(ops::Backend& b, int32_t index) const {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    const bool is_recurrent = f_.q.is_recurrent[static_cast<size_t>(index)];
    if (index == f_.ngram.layer) {
      b.set_layer(index, "ngram");
      run_ngram_layer(b, ngram_, ngram_rows_, streams_);
    }
    b.set_layer(index, is_recurrent ? "delta_net" : "attention");
    run_hyper_connection(b, layer.mixer_hc, f_.n_streams, mixers_.eps, streams_, stream_rows_, x_);
    if (is_recurrent) {
      run_delta_net(b, layer.delta, mixers_, x_);
      b.project(mixers_.delta, {&layer.delta.output, 1}, {&y_, 1});
    } else {
      run_gated_attention(b, layer.attention, mixers_, x_);
      b.project(mixers_.attended, {&layer.attention.output, 1}, {&y_, 1});
    }
    b.inject_streams(y_, stream_rows_.strength, streams_);
    b.set_layer(index, "experts");
    run_hyper_connection(b, layer.ffn_hc, f_.n_streams, mixers_.eps, streams_, stream_rows_, x_);
    run_expert_layer(b, layer.ffn, expert_rows_, x_, y_);
    b.inject_streams(y_, stream_rows_.strength, streams_);
  }

  ops::ExpertsConfig experts_config(int64_t max_rows) const {
    return {.max_rows = max_rows,
            .n_used = static_cast<int32_t>(f_.n_experts_used),
            .n_experts = static_cast<int32_t>(f_.n_experts),
            .d_model = f_.q.h.d_model,
            .d_ff = f_.d_expert};
  }
  Result<Layer> load_layer(WeightLoader& loader, int32_t index);
  void plan_rows();

  FlashNextHparams f_;
  ops::Weight embedding_, output_;
  HyperConnection output_hc_;
  std::vector<Layer> layers_;
  NgramLayer ngram_;

  RowsPlan rows_;
  ops::Rows streams_, x_, y_;  // (n_streams d), a block's input and result (d)
  StreamRows stream_rows_;
  QwenMixers mixers_;
  ExpertRows expert_rows_;
  NgramRows ngram_rows_;
  ops::Rows output_streams_, output_x_, logits_;
  StreamRows output_rows_;
};

Result<FlashNext::Layer> FlashNext::load_layer(WeightLoader& loader, int32_t index) {
  const std::string prefix = fmt::format("blk.{}.", index);
  Layer layer;
  OKIBI_ASSIGN_OR_RETURN(layer.mixer_hc,
                         load_hyper_connection(loader, prefix + "hc_attn", f_, true));
  if (f_.q.is_recurrent[static_cast<size_t>(index)]) {
    OKIBI_ASSIGN_OR_RETURN(layer.delta, load_delta_net(loader, prefix, f_.q, &facts_));
  } else {
    OKIBI_ASSIGN_OR_RETURN(layer.attention, load_gated_attention(loader, prefix, f_.q, f_.index,
                                                                 f_.n_index_heads, &facts_));
  }
  OKIBI_ASSIGN_OR_RETURN(layer.ffn_hc, load_hyper_connection(loader, prefix + "hc_ffn", f_, true));
  OKIBI_ASSIGN_OR_RETURN(layer.ffn, load_expert_layer(loader, prefix, f_));
  return layer;
}

void FlashNext::plan_rows() {
  const Hparams& h = f_.q.h;
  const int64_t width = f_.n_streams * h.d_model;
  rows_.row(&streams_, width);
  rows_.row(&x_, h.d_model);
  rows_.row(&y_, h.d_model);
  rows_.row(&stream_rows_.normed, width);
  rows_.row(&stream_rows_.low, f_.low_rank);
  rows_.row(&stream_rows_.mix, width);
  rows_.row(&stream_rows_.strength, f_.n_streams);
  mixers_.plan_rows(f_.q, f_.index, f_.n_index_heads, &rows_);
  rows_.row(&expert_rows_.router, f_.n_experts);
  rows_.row(&expert_rows_.gate, f_.d_shared);
  rows_.row(&expert_rows_.up, f_.d_shared);
  rows_.row(&expert_rows_.strength, 1);
  rows_.row(&expert_rows_.shared, h.d_model);
  if (f_.ngram.layer >= 0) {
    rows_.row(&ngram_rows_.gathered, f_.ngram.n_heads() * f_.ngram.row_width);
    rows_.row(&ngram_rows_.key, width);
    rows_.row(&ngram_rows_.value, h.d_model);
  }
  rows_.output(&output_streams_, width);
  rows_.output(&output_rows_.normed, width);
  rows_.output(&output_rows_.low, f_.low_rank);
  rows_.output(&output_rows_.mix, width);
  rows_.output(&output_x_, h.d_model);
  rows_.output(&logits_, h.n_vocab);
}

Result<std::unique_ptr<Model>> FlashNext::load(WeightLoader& loader) {
  auto m = std::make_unique<FlashNext>();
  OKIBI_ASSIGN_OR_RETURN(m->f_, read_flash_next_hparams(loader.file()));
  const FlashNextHparams& f = m->f_;
  const Hparams& h = f.q.h;
  OKIBI_ASSIGN_OR_RETURN(m->embedding_, loader.table("token_embd", h.d_model, h.n_vocab));
  for (int32_t i = 0; i < f.q.n_trunk; ++i) {
    if (i == f.ngram.layer) {
      OKIBI_ASSIGN_OR_RETURN(m->ngram_, load_ngram_layer(loader, f, &m->facts_));
    }
    OKIBI_ASSIGN_OR_RETURN(Layer layer, m->load_layer(loader, i));
    m->layers_.push_back(layer);
  }
  OKIBI_RETURN_IF_ERROR(check_next_token_blocks(loader, f));
  OKIBI_ASSIGN_OR_RETURN(m->output_hc_, load_hyper_connection(loader, "output_hc", f, false));
  m->output_ = m->embedding_;
  if (loader.has("output.weight")) {
    OKIBI_ASSIGN_OR_RETURN(m->output_, loader.table("output", h.d_model, h.n_vocab));
  }
  m->plan_rows();
  fill_facts(m->facts_, h, loader, m->embedding_, m->output_);
  m->facts_.n_layers = f.q.n_trunk;
  return std::unique_ptr<Model>(std::move(m));
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen4exp(WeightLoader& loader) {
  return FlashNext::load(loader);
}

}  // namespace okibi::model
