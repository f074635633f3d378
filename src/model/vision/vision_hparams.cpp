#include "model/vision/vision_hparams.h"

#include <fmt/format.h>

#include <algorithm>

namespace okibi::model {
namespace {

constexpr std::string_view kPrefix = "clip.vision.";

Result<int64_t> read_int(const gguf::File& file, std::string_view name, int64_t min, int64_t max) {
  const std::string key = fmt::format("{}{}", kPrefix, name);
  OKIBI_ASSIGN_OR_RETURN(uint64_t value, file.get_u64(key));
  if (value > static_cast<uint64_t>(max) || static_cast<int64_t>(value) < min) {
    return bad_data(fmt::format("{}: found {}, expected {} to {}", key, value, min, max));
  }
  return static_cast<int64_t>(value);
}

Result<int32_t> read_int32_or(const gguf::File& file, std::string_view name, int32_t fallback,
                              int32_t min, int32_t max) {
  if (!file.has(fmt::format("{}{}", kPrefix, name))) return fallback;
  OKIBI_ASSIGN_OR_RETURN(int64_t value, read_int(file, name, min, max));
  return static_cast<int32_t>(value);
}

Status expect_text(const gguf::File& file, std::string_view key, std::string_view expected) {
  OKIBI_ASSIGN_OR_RETURN(std::string_view found, file.get_string(key));
  if (found == expected) return ok_status();
  return unsupported(fmt::format("{}: found \"{}\", expected \"{}\"", key, found, expected));
}

Status check_kind(const gguf::File& file) {
  OKIBI_RETURN_IF_ERROR(expect_text(file, "general.architecture", "clip"));
  OKIBI_ASSIGN_OR_RETURN(std::string_view type, file.get_string_or("general.type", "mmproj"));
  if (type != "mmproj") {
    return unsupported(fmt::format("general.type: found \"{}\", expected \"mmproj\"", type));
  }
  OKIBI_ASSIGN_OR_RETURN(bool sees, file.get_bool_or("clip.has_vision_encoder", true));
  if (!sees) {
    return unsupported("clip.has_vision_encoder: found false, expected a file with an encoder");
  }
  OKIBI_RETURN_IF_ERROR(expect_text(file, "clip.projector_type", "lfm2"));
  OKIBI_ASSIGN_OR_RETURN(bool uses_silu, file.get_bool_or("clip.use_silu", false));
  OKIBI_ASSIGN_OR_RETURN(bool uses_gelu, file.get_bool_or("clip.use_gelu", true));
  if (uses_silu || !uses_gelu) {
    return unsupported(
        fmt::format("clip.use_gelu: found {} (clip.use_silu {}), this build runs encoders with "
                    "GELU",
                    uses_gelu, uses_silu));
  }
  return ok_status();
}

Result<std::array<float, 3>> read_channels(const gguf::File& file, std::string_view name,
                                           bool positive) {
  const std::string key = fmt::format("{}{}", kPrefix, name);
  OKIBI_ASSIGN_OR_RETURN(std::vector<float> values, file.get_floats(key));
  std::array<float, 3> channels = {};
  bool good = values.size() == 3;
  for (size_t i = 0; good && i < 3; ++i) {
    channels[i] = values[i];
    good = values[i] - values[i] == 0.0f && (!positive || values[i] > 0.0f);
  }
  if (good) return channels;
  return bad_data(fmt::format("{}: expected three finite{} numbers, found {} entries", key,
                              positive ? " positive" : "", values.size()));
}

Result<const gguf::TensorInfo*> find(const gguf::File& file, const char* name) {
  const gguf::TensorInfo* info = file.find_tensor(name);
  if (info == nullptr) return bad_data(fmt::format("the tensor {} is missing", name));
  return info;
}

Status read_shapes(const gguf::File& file, VisionHparams& h) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* table, find(file, "v.position_embd.weight"));
  const uint64_t n = table->n_rows();
  while (h.position_side < 1024 &&
         static_cast<uint64_t>(h.position_side) * static_cast<uint64_t>(h.position_side) < n) {
    ++h.position_side;
  }
  if (n == 0 ||
      static_cast<uint64_t>(h.position_side) * static_cast<uint64_t>(h.position_side) != n) {
    return bad_data(
        fmt::format("v.position_embd.weight: expected a square number of rows of {} values, the "
                    "file has {}",
                    h.d_model, gguf::shape_text(*table)));
  }
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* first, find(file, "mm.1.weight"));
  if (first->n_rows() < 1 || first->n_rows() > (uint64_t{1} << 20)) {
    return bad_data(fmt::format("mm.1.weight: expected 1 to 1048576 rows, the file has {}",
                                gguf::shape_text(*first)));
  }
  h.projector_hidden = static_cast<int64_t>(first->n_rows());
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* layer, find(file, "v.blk.0.attn_q.weight"));
  h.layer_type = layer->type;
  h.has_input_norm = file.find_tensor("mm.input_norm.weight") != nullptr;
  return ok_status();
}

// What the published models were trained with; their files do not say it. First-generation models
// are told by the norm before their projector, the 3B ones by their 30 text layers.
image::ViewParams known_view_params(const VisionHparams& h, const TextSide& text) {
  image::ViewParams p;
  const bool is_3b = text.n_layers >= 30;
  if (h.has_input_norm) {
    p.thumbnail = h.d_model > 768;
    if (h.d_model > 768 && !is_3b) p.tolerance = 1.5;
    if (is_3b) p.resample = image::ViewParams::Resample::kBicubic;
  } else if (is_3b) {
    p.min_tiles = 1;
  }
  return p;
}

Status read_view_params(const gguf::File& file, const TextSide& text, VisionHparams& h) {
  h.views = known_view_params(h, text);
  h.views.patch = h.patch;
  h.views.factor = h.factor;
  OKIBI_ASSIGN_OR_RETURN(h.views.min_tiles,
                         read_int32_or(file, "preproc_min_tiles", h.views.min_tiles, 1, 64));
  OKIBI_ASSIGN_OR_RETURN(h.views.max_tiles,
                         read_int32_or(file, "preproc_max_tiles", h.views.max_tiles, 1, 64));
  OKIBI_ASSIGN_OR_RETURN(h.views.tile,
                         read_int32_or(file, "preproc_image_size", h.views.tile, 32, 4096));
  if (h.views.max_tiles < h.views.min_tiles) {
    return bad_data(
        fmt::format("clip.vision.preproc_max_tiles: found {}, expected at least the {} "
                    "of preproc_min_tiles",
                    h.views.max_tiles, h.views.min_tiles));
  }
  const int32_t unit = h.patch * h.factor;
  if (h.views.tile % unit != 0) {
    return bad_data(fmt::format(
        "clip.vision.preproc_image_size: found {}, expected a multiple of {} (patch x factor)",
        h.views.tile, unit));
  }
  return ok_status();
}

}  // namespace

int64_t VisionHparams::max_view_patches() const {
  const int64_t tile_side = views.tile / views.patch;
  return std::max(int64_t{views.max_tokens} * patches_per_token(), tile_side * tile_side);
}

uint64_t VisionHparams::matrix_macs(int64_t n_patches) const {
  const int64_t layer = 4 * d_model * d_model + 2 * d_model * d_ff;
  const int64_t token =
      patches_per_token() * d_model * projector_hidden + projector_hidden * d_text;
  return static_cast<uint64_t>(n_patches * (patch_values() * d_model + n_layers * layer) +
                               n_patches / patches_per_token() * token);
}

uint64_t VisionHparams::attention_macs(int64_t n_patches) const {
  return static_cast<uint64_t>(2 * n_patches * n_patches * n_layers * d_model);
}

Result<VisionHparams> read_vision_hparams(const gguf::File& file, const TextSide& text) {
  OKIBI_RETURN_IF_ERROR(check_kind(file));
  VisionHparams h;
  OKIBI_ASSIGN_OR_RETURN(std::string_view name, file.get_string_or("general.name", ""));
  h.name = std::string(name);
  OKIBI_ASSIGN_OR_RETURN(int64_t n_layers, read_int(file, "block_count", 1, 1024));
  OKIBI_ASSIGN_OR_RETURN(h.d_model, read_int(file, "embedding_length", 1, 1 << 16));
  OKIBI_ASSIGN_OR_RETURN(h.d_ff, read_int(file, "feed_forward_length", 1, 1 << 18));
  OKIBI_ASSIGN_OR_RETURN(int64_t n_heads, read_int(file, "attention.head_count", 1, 1024));
  OKIBI_ASSIGN_OR_RETURN(int64_t patch, read_int(file, "patch_size", 1, 64));
  OKIBI_ASSIGN_OR_RETURN(h.factor, read_int32_or(file, "projector.scale_factor", 2, 1, 8));
  OKIBI_ASSIGN_OR_RETURN(h.d_text, read_int(file, "projection_dim", 1, 1 << 20));
  h.n_layers = static_cast<int32_t>(n_layers);
  h.n_heads = static_cast<int32_t>(n_heads);
  h.patch = static_cast<int32_t>(patch);
  if (h.d_model % n_heads != 0) {
    return bad_data(
        fmt::format("clip.vision.attention.head_count: {} heads do not divide the width "
                    "of {}",
                    n_heads, h.d_model));
  }
  h.head_dim = static_cast<int32_t>(h.d_model / n_heads);
  if (h.d_text != text.d_model) {
    return bad_data(
        fmt::format("clip.vision.projection_dim: found {}, the text model has rows of {} values; "
                    "the two files do not belong together",
                    h.d_text, text.d_model));
  }
  OKIBI_ASSIGN_OR_RETURN(h.norm_eps, file.get_f32("clip.vision.attention.layer_norm_epsilon"));
  if (!(h.norm_eps > 0.0f)) {
    return bad_data(fmt::format(
        "clip.vision.attention.layer_norm_epsilon: found {}, expected a positive number",
        h.norm_eps));
  }
  OKIBI_ASSIGN_OR_RETURN(h.mean, read_channels(file, "image_mean", false));
  OKIBI_ASSIGN_OR_RETURN(h.std_dev, read_channels(file, "image_std", true));
  OKIBI_RETURN_IF_ERROR(read_shapes(file, h));
  OKIBI_RETURN_IF_ERROR(read_view_params(file, text, h));
  return h;
}

}  // namespace okibi::model
