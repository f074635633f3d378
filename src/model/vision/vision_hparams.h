// The numbers of a vision file (mmproj): what its keys and tensor shapes say, checked, and how its
// model cuts pictures into views. Knows no weights.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gguf/reader.h"
#include "image/view.h"
#include "okibi/status.h"
#include "tensor/dtype.h"

namespace okibi::model {

// What a vision file must fit.
struct TextSide {
  int64_t d_model = 0;
  int32_t n_layers = 0;
};

struct VisionHparams {
  std::string name;
  int32_t n_layers = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int32_t n_heads = 0, head_dim = 0;
  float norm_eps = 0;
  int32_t patch = 0;   // px, side of a patch
  int32_t factor = 0;  // patches of an image token, along each side
  std::array<float, 3> mean = {}, std_dev = {};
  int32_t position_side = 0;  // the learned table has position_side^2 rows
  bool has_input_norm = false;
  DType layer_type = DType::kF32;  // of the layers' matrices
  bool is_quantised() const { return traits_of(layer_type).block_size > 1; }
  int64_t projector_hidden = 0;
  int64_t d_text = 0;
  image::ViewParams views;

  int64_t patch_values() const { return int64_t{3} * patch * patch; }
  int64_t patches_per_token() const { return int64_t{factor} * factor; }
  // The most patches of one view.
  int64_t max_view_patches() const;
  // Multiply-adds of encoding a view of n patches: of all matrices, and inside attention.
  uint64_t matrix_macs(int64_t n_patches) const;
  uint64_t attention_macs(int64_t n_patches) const;
};

// Errors name the key or tensor, what was found and what was expected.
Result<VisionHparams> read_vision_hparams(const gguf::File& file, const TextSide& text);

}  // namespace okibi::model
