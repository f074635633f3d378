// SigLIP2 (NaFlex) and the projector of LFM2-VL: tensors, shapes and the forward pass.
// Source of tensors and formulas: spec of LFM2-VL, sections 2.2 to 2.7.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/vision/encoder.h"

namespace okibi::model {
namespace {

constexpr float kInputNormEps = 1e-5f;  // of the norm before the projector; no key says it

}  // namespace

struct VisionEncoder::Plan {
  std::vector<int32_t> zeros, positions;
  std::vector<uint32_t> row_sequence, joined;
  std::vector<ops::SequenceSpan> spans;

  // Appends a view of grid_h x grid_w patches, whose joined rows go over factor x factor patches.
  void add_view(uint32_t grid_h, uint32_t grid_w, uint32_t factor) {
    const auto first = static_cast<uint32_t>(positions.size());
    const auto index = static_cast<uint32_t>(spans.size());
    spans.push_back({.first_row = first, .n_rows = grid_h * grid_w});
    for (uint32_t i = 0; i < grid_h * grid_w; ++i) {
      zeros.push_back(0);
      positions.push_back(static_cast<int32_t>(i));
      row_sequence.push_back(index);
    }
    for (uint32_t y = 0; y < grid_h; y += factor) {
      for (uint32_t x = 0; x < grid_w; x += factor) {
        for (uint32_t i = 0; i < factor * factor; ++i) {
          joined.push_back(first + (y + i / factor) * grid_w + x + i % factor);
        }
      }
    }
  }
  ops::BatchPlan batch() const {
    return {.n_rows = static_cast<uint32_t>(positions.size()),
            .tokens = zeros,
            .positions = positions,
            .row_sequence = row_sequence,
            .sequences = spans,
            .output_rows = joined};
  }
};

PixelTable::PixelTable(const VisionHparams& h) : patch_(h.patch) {
  for (size_t c = 0; c < values_.size(); ++c) {
    for (size_t i = 0; i < values_[c].size(); ++i) {
      values_[c][i] = static_cast<float>((static_cast<double>(i) / 255.0 - h.mean[c]) /
                                         static_cast<double>(h.std_dev[c]));
    }
  }
}

void PixelTable::read_patch(const image::View& view, int32_t y, int32_t x, float* out) const {
  for (size_t c = 0; c < values_.size(); ++c) {
    for (int32_t i = 0; i < patch_; ++i) {
      const uint8_t* pixel =
          view.rgb.data() + (int64_t{y * patch_ + i} * view.width + x * patch_) * 3 + c;
      for (int32_t j = 0; j < patch_; ++j, pixel += 3) *out++ = values_[c][*pixel];
    }
  }
}

Result<VisionEncoder::Biased> VisionEncoder::load_biased(WeightLoader& loader,
                                                         const std::string& name, int64_t n_in,
                                                         int64_t n_out) {
  Biased b;
  OKIBI_ASSIGN_OR_RETURN(b.weight, loader.matrix(name, n_in, n_out));
  OKIBI_ASSIGN_OR_RETURN(b.bias, loader.vector(name + ".bias", n_out));
  return b;
}

Result<VisionEncoder::Norm> VisionEncoder::load_norm(WeightLoader& loader, const std::string& name,
                                                     int64_t n) {
  Norm norm;
  OKIBI_ASSIGN_OR_RETURN(norm.weight, loader.vector(name + ".weight", n));
  OKIBI_ASSIGN_OR_RETURN(norm.bias, loader.vector(name + ".bias", n));
  return norm;
}

Result<VisionEncoder::Layer> VisionEncoder::load_layer(WeightLoader& loader, int32_t index) const {
  const std::string prefix = fmt::format("v.blk.{}.", index);
  const int64_t d = hparams_.d_model, f = hparams_.d_ff;
  Layer layer;
  OKIBI_ASSIGN_OR_RETURN(layer.norm1, load_norm(loader, prefix + "ln1", d));
  OKIBI_ASSIGN_OR_RETURN(layer.q, load_biased(loader, prefix + "attn_q", d, d));
  OKIBI_ASSIGN_OR_RETURN(layer.k, load_biased(loader, prefix + "attn_k", d, d));
  OKIBI_ASSIGN_OR_RETURN(layer.v, load_biased(loader, prefix + "attn_v", d, d));
  OKIBI_ASSIGN_OR_RETURN(layer.out, load_biased(loader, prefix + "attn_out", d, d));
  OKIBI_ASSIGN_OR_RETURN(layer.norm2, load_norm(loader, prefix + "ln2", d));
  OKIBI_ASSIGN_OR_RETURN(layer.up, load_biased(loader, prefix + "ffn_up", d, f));
  OKIBI_ASSIGN_OR_RETURN(layer.down, load_biased(loader, prefix + "ffn_down", f, d));
  return layer;
}

// What stands before the first layer and behind the last.
Status VisionEncoder::load_ends(WeightLoader& loader) {
  const VisionHparams& h = hparams_;
  OKIBI_ASSIGN_OR_RETURN(patch_embedding_,
                         loader.flat_matrix("v.patch_embd", h.patch_values(), h.d_model));
  OKIBI_ASSIGN_OR_RETURN(patch_bias_, loader.floats("v.patch_embd.bias", h.d_model));
  OKIBI_ASSIGN_OR_RETURN(
      std::vector<float> table,
      loader.floats("v.position_embd.weight", h.d_model * h.position_side * h.position_side));
  if (loader.file().find_tensor("v.position_embd.weight")->ne[0] !=
      static_cast<uint64_t>(h.d_model)) {
    return bad_data(fmt::format(
        "v.position_embd.weight: expected rows of {} values, the file has {}", h.d_model,
        gguf::shape_text(*loader.file().find_tensor("v.position_embd.weight"))));
  }
  positions_ = PositionTable(h.position_side, h.d_model, std::move(table));
  OKIBI_ASSIGN_OR_RETURN(post_norm_, load_norm(loader, "v.post_ln", h.d_model));
  const int64_t joined = h.patches_per_token() * h.d_model;
  if (h.has_input_norm) {
    OKIBI_ASSIGN_OR_RETURN(input_norm_, load_norm(loader, "mm.input_norm", joined));
  }
  OKIBI_ASSIGN_OR_RETURN(projector1_, load_biased(loader, "mm.1", joined, h.projector_hidden));
  OKIBI_ASSIGN_OR_RETURN(projector2_, load_biased(loader, "mm.2", h.projector_hidden, h.d_text));
  return ok_status();
}

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::load(WeightLoader& loader,
                                                           const TextSide& text) {
  auto encoder = std::make_unique<VisionEncoder>();
  OKIBI_ASSIGN_OR_RETURN(encoder->hparams_, read_vision_hparams(loader.file(), text));
  encoder->pixels_ = PixelTable(encoder->hparams_);
  // Files of 16 bits and fewer have no more to lose; float32 ones are for checking.
  loader.may_round = encoder->hparams_.layer_type != DType::kF32;
  OKIBI_RETURN_IF_ERROR(encoder->load_ends(loader));
  for (int32_t i = 0; i < encoder->hparams_.n_layers; ++i) {
    OKIBI_ASSIGN_OR_RETURN(Layer layer, encoder->load_layer(loader, i));
    encoder->layers_.push_back(layer);
  }
  encoder->weights_ = loader.weights();
  encoder->n_parameters_ = loader.n_parameters();
  return encoder;
}

int64_t VisionEncoder::n_tokens(const image::View& view) const {
  const int64_t unit = int64_t{hparams_.patch} * hparams_.factor;
  return view.width / unit * (view.height / unit);
}

uint64_t VisionEncoder::activation_bytes(int64_t max_patches) const {
  const VisionHparams& h = hparams_;
  const int64_t per_patch = h.patch_values() + 7 * h.d_model + h.d_ff + 2 * h.d_model;
  const int64_t per_token = h.patches_per_token() * h.d_model + h.projector_hidden + h.d_text;
  return static_cast<uint64_t>(max_patches * per_patch +
                               max_patches / h.patches_per_token() * per_token) *
             sizeof(float) +
         PositionTable::max_kept_bytes(h.max_view_patches(), h.d_model);
}

Status VisionEncoder::add_activations(ops::Backend& backend, int64_t max_patches) {
  const VisionHparams& h = hparams_;
  CHECK(max_patches_ == 0 && max_patches >= h.patches_per_token(), "%lld patches",
        static_cast<long long>(max_patches));
  const int64_t n_tokens = max_patches / h.patches_per_token();
  OKIBI_ASSIGN_OR_RETURN(patches_, backend.add_rows(max_patches, h.patch_values()));
  for (ops::Rows* rows : {&x_, &q_, &k_, &v_, &mixed_}) {
    OKIBI_ASSIGN_OR_RETURN(*rows, backend.add_rows(max_patches, h.d_model));
  }
  std::vector<ops::Weight> readers, outs;
  for (const Layer& layer : layers_) {
    outs.push_back(layer.out.weight);
    for (const Biased* b : {&layer.q, &layer.k, &layer.v, &layer.up}) readers.push_back(b->weight);
  }
  OKIBI_ASSIGN_OR_RETURN(normed_, backend.add_input_rows(max_patches, h.d_model, readers));
  OKIBI_ASSIGN_OR_RETURN(attended_, backend.add_input_rows(max_patches, h.d_model, outs));
  OKIBI_ASSIGN_OR_RETURN(ff_, backend.add_rows(max_patches, h.d_ff));
  OKIBI_ASSIGN_OR_RETURN(joined_, backend.add_rows(n_tokens, h.patches_per_token() * h.d_model));
  OKIBI_ASSIGN_OR_RETURN(hidden_, backend.add_rows(n_tokens, h.projector_hidden));
  OKIBI_ASSIGN_OR_RETURN(out_, backend.add_rows(n_tokens, h.d_text));
  OKIBI_RETURN_IF_ERROR(backend.set_view_attention(max_patches, h.n_heads, h.head_dim));
  max_patches_ = max_patches;
  return ok_status();
}

Status VisionEncoder::check(std::span<const image::View* const> views) const {
  const int32_t unit = hparams_.patch * hparams_.factor;
  int64_t n_patches = 0;
  for (const image::View* view : views) {
    const int64_t n_bytes = int64_t{3} * view->width * view->height;
    if (view->width < unit || view->height < unit || view->width % unit != 0 ||
        view->height % unit != 0 || static_cast<int64_t>(view->rgb.size()) != n_bytes) {
      return invalid_argument(
          fmt::format("a view of {} x {} pixels ({} bytes): expected sides of a multiple of {}",
                      view->width, view->height, view->rgb.size(), unit));
    }
    n_patches += int64_t{view->width / hparams_.patch} * (view->height / hparams_.patch);
  }
  if (n_patches > max_patches_) {
    return resource_exhausted(fmt::format("views of {} patches: the encoder takes {} in one step",
                                          n_patches, max_patches_));
  }
  return ok_status();
}

// A view's normalised pixels, and its positions with the patch bias in the residual stream, to
// which the patch embedding is then added.
void VisionEncoder::write_inputs(ops::Backend& backend, const image::View& view,
                                 int64_t first_row) {
  const int32_t grid_h = view.height / hparams_.patch, grid_w = view.width / hparams_.patch;
  const std::span<const float> positions = positions_.resized(grid_h, grid_w);
  const auto d = static_cast<size_t>(hparams_.d_model);
  std::vector<float> patch(static_cast<size_t>(hparams_.patch_values())), start(d);
  for (int32_t i = 0; i < grid_h * grid_w; ++i) {
    pixels_.read_patch(view, i / grid_w, i % grid_w, patch.data());
    backend.write(patches_, first_row + i, patch);
    for (size_t j = 0; j < d; ++j) {
      start[j] = patch_bias_[j] + positions[static_cast<size_t>(i) * d + j];
    }
    backend.write(x_, first_row + i, start);
  }
}

void VisionEncoder::forward(ops::Backend& b) const {
  const VisionHparams& h = hparams_;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.head_dim)));
  b.set_layer(-1, "patches");
  b.project_add(patches_, patch_embedding_, x_);
  ops::Vector bias;  // of the product that was last added to x
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    b.set_layer(static_cast<int32_t>(i), "view_attention");
    b.layer_norm(x_, bias, layer.norm1.weight, layer.norm1.bias, h.norm_eps, normed_);
    const ops::Weight weights[] = {layer.q.weight, layer.k.weight, layer.v.weight};
    b.project_attend_view({.n_heads = h.n_heads,
                           .scale = scale,
                           .q_bias = layer.q.bias,
                           .k_bias = layer.k.bias,
                           .v_bias = layer.v.bias,
                           .may_round = h.is_quantised()},
                          normed_, weights, q_, k_, v_, attended_);
    b.project_add(attended_, layer.out.weight, x_);
    b.set_layer(static_cast<int32_t>(i), "view_feed_forward");
    b.layer_norm(x_, layer.out.bias, layer.norm2.weight, layer.norm2.bias, h.norm_eps, normed_);
    b.feed_forward(normed_, layer.up.weight, layer.up.bias, ops::Gelu::kTanh, ff_,
                   layer.down.weight, x_);
    bias = layer.down.bias;
  }
  b.set_layer(-1, "projector");
  b.layer_norm(x_, bias, post_norm_.weight, post_norm_.bias, h.norm_eps, mixed_);
  b.join_rows(mixed_, joined_);
  if (h.has_input_norm) {
    b.layer_norm(joined_, {}, input_norm_.weight, input_norm_.bias, kInputNormEps, joined_);
  }
  b.project(joined_, {&projector1_.weight, 1}, {&hidden_, 1});
  b.gelu(hidden_, projector1_.bias, ops::Gelu::kErf);
  b.project(hidden_, {&projector2_.weight, 1}, {&out_, 1});
  b.add_bias(out_, projector2_.bias);
}

std::vector<std::vector<float>> VisionEncoder::encode(ops::Backend& backend,
                                                      std::span<const image::View* const> views) {
  Plan plan;
  for (const image::View* view : views) {
    write_inputs(backend, *view, static_cast<int64_t>(plan.positions.size()));
    plan.add_view(static_cast<uint32_t>(view->height / hparams_.patch),
                  static_cast<uint32_t>(view->width / hparams_.patch),
                  static_cast<uint32_t>(hparams_.factor));
  }
  const ops::BatchPlan batch = plan.batch();
  backend.begin_step(batch);
  forward(backend);
  backend.end_step();

  std::vector<std::vector<float>> results;
  int64_t row = 0;
  for (const image::View* view : views) {
    std::vector<float>& rows = results.emplace_back();
    const int64_t n = n_tokens(*view);
    rows.reserve(static_cast<size_t>(n * hparams_.d_text));
    for (int64_t i = 0; i < n; ++i, ++row) {
      const std::span<const float> values = backend.read(out_, row);
      rows.insert(rows.end(), values.begin(), values.end());
    }
  }
  return results;
}

}  // namespace okibi::model
