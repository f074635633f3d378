// Antialiased resizing of 8-bit RGB, in the integers of the reference (PyTorch's interpolate on
// uint8): separable, horizontal pass first, each pass rounded to 8 bits. Internal to src/image.
#pragma once

#include <cstdint>
#include <vector>

#include "image/view.h"

namespace okibi::image {

// The weights of one pass from n to m samples: output i is
//   clamp((2^(precision - 1) + sum_j weights[i * stride + j] * in[first[i] + j]) >> precision)
// over j < count[i].
struct AxisWeights {
  int32_t precision = 0, stride = 0;
  std::vector<int32_t> first, count;
  std::vector<int16_t> weights;
};
AxisWeights make_axis_weights(int32_t n, int32_t m, ViewParams::Resample resample);

// rgb is row-major, 3 * width * height; sides are at least 1.
std::vector<uint8_t> resize_rgb(const std::vector<uint8_t>& rgb, int32_t width, int32_t height,
                                int32_t to_width, int32_t to_height, ViewParams::Resample resample);

}  // namespace okibi::image
