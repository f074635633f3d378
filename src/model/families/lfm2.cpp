// Architecture `lfm2`: LFM2 and LFM2.5 text models of all sizes. Layers are either attention (with
// norms on query and key heads, half-split rotation) or a gated short convolution, as the file's
// array of K/V head counts says; every layer has a gated feed-forward.
// Source of tensors and formulas: spec of LFM2, sections 1.2 to 1.4.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/families.h"
#include "model/families/parts.h"

namespace okibi::model {
namespace {

class Lfm2 final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(WeightLoader& loader);

  Status add_activations(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) override {
    OKIBI_ASSIGN_OR_RETURN(act_, add_activation_rows(backend, widths_, max_rows, max_outputs));
    OKIBI_ASSIGN_OR_RETURN(bcx_, backend.add_rows(max_rows, 3 * widths_.d_model));
    rope_ = backend.add_rope(rope_config_);
    return ok_status();
  }
  uint64_t activation_bytes(int64_t max_rows, int64_t max_outputs) const override {
    return widths_.bytes(max_rows, max_outputs) +
           static_cast<uint64_t>(max_rows * 3 * widths_.d_model) * sizeof(float);
  }

  void forward(ops::Backend& b, bool with_outputs) const override {
    b.set_layer(-1, "embedding");
    b.embed(embedding_, act_.x);
    b.put_embeddings(act_.x);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      b.set_layer(static_cast<int32_t>(i), layer.is_attention ? "attention" : "short_conv");
      b.rms_norm(act_.x, layer.operator_norm, eps_, act_.normed);
      if (!run_mixer(b, layer, with_outputs)) return;
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
    bool is_attention = false;
    ops::Vector operator_norm, ffn_norm;
    Attention attention;
    ops::Weight conv_in, conv_out;
    ops::Vector conv_kernel;
    uint64_t state_offset = 0;  // floats into a state slot
    FeedForward ffn;
    // No attention follows, so that rows count from the first output on, and in front of them as
    // many as the convolutions behind this layer reach back.
    bool is_tail = false;
    uint32_t n_reach = 0;
  };

  // x += the layer's mixer of normed. False when nobody reads what follows.
  bool run_mixer(ops::Backend& b, const Layer& layer, bool with_outputs) const;
  void find_tail(const WeightLoader& loader, int32_t n_taps);
  Result<Layer> load_layer(WeightLoader& loader, const Hparams& h, int32_t index, int32_t n_taps);

  float eps_ = 0;
  ops::Weight embedding_, output_;
  ops::Vector output_norm_;
  std::vector<Layer> layers_;
  ActivationWidths widths_;
  Activations act_;
  ops::Rows bcx_;
  ops::RopeConfig rope_config_;
  ops::Rope rope_;
};

bool Lfm2::run_mixer(ops::Backend& b, const Layer& layer, bool with_outputs) const {
  if (layer.is_attention && !layer.is_tail) {
    run_attention(b, layer.attention, rope_, eps_, act_);
    return true;
  }
  if (layer.is_attention) {
    store_keys_values(b, layer.attention, rope_, eps_, act_);
  } else {
    b.project(act_.normed, {&layer.conv_in, 1}, {&bcx_, 1});
    b.short_conv(layer.state_offset, bcx_, layer.conv_kernel, act_.normed);
  }
  if (layer.is_tail) {  // what later steps read of this layer is stored
    if (!with_outputs && layer.n_reach == 0) return false;
    const ops::Rows rows[] = {act_.x, act_.normed};
    b.keep_tails(layer.n_reach, rows);
  }
  if (layer.is_attention) {
    run_queries(b, layer.attention, rope_, eps_, act_);
  } else {
    b.project_add(act_.normed, layer.conv_out, act_.x);
  }
  return true;
}

void Lfm2::find_tail(const WeightLoader& loader, int32_t n_taps) {
  uint32_t n_reach = 0;
  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    layer.is_tail = true;
    layer.n_reach = n_reach;
    count_tail(facts_, loader, {layer.ffn.gate, layer.ffn.up, layer.ffn.down});
    if (layer.is_attention) {
      count_tail(facts_, loader, {layer.attention.q, layer.attention.output});
      facts_.query_heads.back().only_tails = true;
      return;
    }
    count_tail(facts_, loader, {layer.conv_in, layer.conv_out});
    n_reach += static_cast<uint32_t>(n_taps - 1);
  }
}

// No key holds the head width: it is the length of the query norm of the first attention layer.
Result<int32_t> find_head_dim(const gguf::File& file, const Hparams& h) {
  if (h.k_dim > 0) return h.k_dim;
  for (int32_t i = 0; i < h.n_layers; ++i) {
    if (h.n_kv_heads[i] == 0) continue;
    const std::string name = fmt::format("blk.{}.attn_q_norm.weight", i);
    const gguf::TensorInfo* info = file.find_tensor(name);
    if (info == nullptr) return bad_data(fmt::format("the tensor {} is missing", name));
    if (info->n_elements() < 2 || info->n_elements() > 65536 || info->n_elements() % 2 != 0) {
      return bad_data(fmt::format("{}: found {} values, expected an even number from 2 to 65536",
                                  name, info->n_elements()));
    }
    return static_cast<int32_t>(info->n_elements());
  }
  return bad_data("lfm2.attention.head_count_kv: no layer has attention");
}

Result<Lfm2::Layer> Lfm2::load_layer(WeightLoader& loader, const Hparams& h, int32_t index,
                                     int32_t n_taps) {
  const std::string prefix = fmt::format("blk.{}.", index);
  Layer layer;
  layer.is_attention = h.n_kv_heads[index] > 0;
  OKIBI_ASSIGN_OR_RETURN(layer.operator_norm,
                         loader.vector(prefix + "attn_norm.weight", h.d_model));
  if (layer.is_attention) {
    OKIBI_ASSIGN_OR_RETURN(layer.attention,
                           load_attention(loader, prefix, h.d_model, h.n_heads[index],
                                          h.n_kv_heads[index], h.k_dim, h.v_dim, true));
    layer.attention.kv_layer = static_cast<int32_t>(facts_.kv_layers.size());
    facts_.kv_layers.push_back({h.n_kv_heads[index], h.k_dim, h.v_dim});
    facts_.query_heads.push_back({h.n_heads[index], 0});
  } else {
    OKIBI_ASSIGN_OR_RETURN(layer.conv_in,
                           loader.matrix(prefix + "shortconv.in_proj", h.d_model, 3 * h.d_model));
    OKIBI_ASSIGN_OR_RETURN(layer.conv_out,
                           loader.matrix(prefix + "shortconv.out_proj", h.d_model, h.d_model));
    OKIBI_ASSIGN_OR_RETURN(layer.conv_kernel,
                           loader.vector(prefix + "shortconv.conv.weight", n_taps * h.d_model));
    layer.state_offset = facts_.state_floats;
    facts_.state_floats += static_cast<uint64_t>((n_taps - 1) * h.d_model);
  }
  OKIBI_ASSIGN_OR_RETURN(layer.ffn_norm, loader.vector(prefix + "ffn_norm.weight", h.d_model));
  if (h.d_ff[index] < 1 || h.d_ff[index] != h.d_ff[0]) {
    return bad_data(fmt::format("lfm2.feed_forward_length: layer {} has width {}, layer 0 has {}",
                                index, h.d_ff[index], h.d_ff[0]));
  }
  OKIBI_ASSIGN_OR_RETURN(layer.ffn, load_feed_forward(loader, prefix, h.d_model, h.d_ff[index]));
  return layer;
}

// What the file says, completed and checked; n_taps is the length of the convolutions.
struct FileHparams {
  Hparams h;
  int32_t n_taps = 0;
};

Result<FileHparams> read_lfm2_hparams(const gguf::File& file) {
  OKIBI_ASSIGN_OR_RETURN(Hparams h, read_hparams(file));
  OKIBI_ASSIGN_OR_RETURN(h.k_dim, find_head_dim(file, h));
  if (h.v_dim == 0) h.v_dim = h.k_dim;
  if (h.n_rot == 0) h.n_rot = h.k_dim;
  if (h.n_rot % 2 != 0 || h.n_rot > h.k_dim) {
    return bad_data(
        fmt::format("lfm2.rope.dimension_count: found {}, expected an even number up "
                    "to the head's {} values",
                    h.n_rot, h.k_dim));
  }
  OKIBI_ASSIGN_OR_RETURN(const uint32_t n_taps, file.get_u32("lfm2.shortconv.l_cache"));
  if (n_taps < 2 || n_taps > 16) {
    return bad_data(fmt::format("lfm2.shortconv.l_cache: found {}, expected 2 to 16", n_taps));
  }
  if (file.has("lfm2.attention.sliding_window")) {
    OKIBI_ASSIGN_OR_RETURN(const uint32_t window, file.get_u32("lfm2.attention.sliding_window"));
    if (window > 0) {
      return unsupported(
          fmt::format("lfm2.attention.sliding_window: found {}, this build attends "
                      "to the whole context",
                      window));
    }
  }
  return FileHparams{std::move(h), static_cast<int32_t>(n_taps)};
}

Result<std::unique_ptr<Model>> Lfm2::load(WeightLoader& loader) {
  OKIBI_ASSIGN_OR_RETURN(const FileHparams read, read_lfm2_hparams(loader.file()));
  const Hparams& h = read.h;
  auto m = std::make_unique<Lfm2>();
  m->eps_ = h.norm_eps;
  OKIBI_ASSIGN_OR_RETURN(m->embedding_, loader.table("token_embd", h.d_model, h.n_vocab));
  int64_t max_heads = 1, max_kv_heads = 1;  // of all attention layers, which must agree
  for (int32_t i = 0; i < h.n_layers; ++i) {
    OKIBI_ASSIGN_OR_RETURN(Layer layer, m->load_layer(loader, h, i, read.n_taps));
    if (layer.is_attention) {
      max_heads = std::max<int64_t>(max_heads, layer.attention.n_heads);
      max_kv_heads = std::max<int64_t>(max_kv_heads, layer.attention.n_kv_heads);
      if (layer.attention.n_heads != max_heads || layer.attention.n_kv_heads != max_kv_heads) {
        return unsupported(
            fmt::format("lfm2.attention.head_count: layer {} has other head counts "
                        "than an attention layer before it",
                        i));
      }
    }
    m->layers_.push_back(layer);
  }
  // The final norm is stored under the name of an embedding norm; some converters call it
  // otherwise.
  const std::string final_norm =
      loader.has("token_embd_norm.weight") ? "token_embd_norm.weight" : "output_norm.weight";
  OKIBI_ASSIGN_OR_RETURN(m->output_norm_, loader.vector(final_norm, h.d_model));
  m->output_ = m->embedding_;
  if (loader.has("output.weight")) {
    OKIBI_ASSIGN_OR_RETURN(m->output_, loader.table("output", h.d_model, h.n_vocab));
  }
  m->rope_config_ = {.style = ops::RopeStyle::kHalfSplit,
                     .head_dim = h.k_dim,
                     .n_rot = h.n_rot,
                     .freq_base = h.rope_freq_base};
  m->widths_ = {.d_model = h.d_model,
                .q = max_heads * h.k_dim,
                .k = max_kv_heads * h.k_dim,
                .v = max_kv_heads * h.v_dim,
                .mixed = max_heads * h.v_dim,
                .d_ff = h.d_ff[0],
                .n_vocab = h.n_vocab};
  fill_facts(m->facts_, h, loader, m->embedding_, m->output_);
  m->find_tail(loader, read.n_taps);
  return std::unique_ptr<Model>(std::move(m));
}

}  // namespace

Result<std::unique_ptr<Model>> load_lfm2(WeightLoader& loader) {
  return Lfm2::load(loader);
}

}  // namespace okibi::model
