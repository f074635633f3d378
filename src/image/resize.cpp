#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace okibi::image {
namespace {

// Cubic convolution with a = -1/2 (Keys), in Horner form.
double cubic(double x) {
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * -0.5;
  return 0;
}

double kernel(double x, ViewParams::Resample resample) {
  x = std::fabs(x);
  if (resample == ViewParams::Resample::kBicubic) return cubic(x);
  return x < 1 ? 1 - x : 0;
}

// The most fraction bits with which the largest weight still fits 16 signed bits.
int32_t choose_precision(double largest) {
  int32_t precision = 0;
  while (precision < 22 &&
         std::floor(0.5 + largest * static_cast<double>(1 << (precision + 1))) < 32768) {
    ++precision;
  }
  return precision;
}

uint8_t clamp8(int32_t v) {
  return static_cast<uint8_t>(std::clamp(v, 0, 255));
}

// One row: three sums per output pixel.
void horizontal_row(const AxisWeights& axis, const uint8_t* in, uint8_t* out) {
  const int32_t half = 1 << (axis.precision - 1);
  const int16_t* weights = axis.weights.data();
  for (size_t x = 0; x < axis.first.size(); ++x, weights += axis.stride, out += 3) {
    const uint8_t* p = in + size_t{3} * static_cast<size_t>(axis.first[x]);
    int32_t r = half, g = half, b = half;
    for (int32_t j = 0; j < axis.count[x]; ++j, p += 3) {
      const int32_t w = weights[j];
      r += w * p[0];
      g += w * p[1];
      b += w * p[2];
    }
    out[0] = clamp8(r >> axis.precision);
    out[1] = clamp8(g >> axis.precision);
    out[2] = clamp8(b >> axis.precision);
  }
}

// Rows are added up whole, in pieces whose sums stay in the first-level cache.
void vertical_row(const AxisWeights& axis, size_t y, const uint8_t* in, size_t row_bytes,
                  uint8_t* out) {
  constexpr size_t kPiece = 2048;
  const int16_t* weights = axis.weights.data() + y * static_cast<size_t>(axis.stride);
  const uint8_t* top = in + row_bytes * static_cast<size_t>(axis.first[y]);
  int32_t sums[kPiece];
  for (size_t begin = 0; begin < row_bytes; begin += kPiece) {
    const size_t n = std::min(kPiece, row_bytes - begin);
    std::fill_n(sums, n, 1 << (axis.precision - 1));
    for (int32_t j = 0; j < axis.count[y]; ++j) {
      const uint8_t* row = top + row_bytes * static_cast<size_t>(j) + begin;
      const int16_t w = weights[j];
      for (size_t i = 0; i < n; ++i) sums[i] += w * static_cast<int16_t>(row[i]);
    }
    for (size_t i = 0; i < n; ++i) out[begin + i] = clamp8(sums[i] >> axis.precision);
  }
}

}  // namespace

AxisWeights make_axis_weights(int32_t n, int32_t m, ViewParams::Resample resample) {
  const double scale = static_cast<double>(n) / m;
  const double inverse = scale >= 1 ? 1 / scale : 1;
  const double reach = resample == ViewParams::Resample::kBicubic ? 2 : 1;
  const double support = scale >= 1 ? reach * scale : reach;
  AxisWeights axis;
  axis.stride = static_cast<int32_t>(std::ceil(support)) * 2 + 1;
  std::vector<double> exact(static_cast<size_t>(m) * static_cast<size_t>(axis.stride));
  double largest = 0;
  for (int32_t i = 0; i < m; ++i) {
    double* row = exact.data() + static_cast<size_t>(i) * static_cast<size_t>(axis.stride);
    const double centre = scale * (i + 0.5);
    const int32_t first = std::max(static_cast<int32_t>(centre - support + 0.5), 0);
    const int32_t end = std::min(static_cast<int32_t>(centre + support + 0.5), n);
    const int32_t count = std::clamp(end - first, 0, axis.stride);
    double total = 0;
    for (int32_t j = 0; j < count; ++j) {
      row[j] = kernel((j + first - centre + 0.5) * inverse, resample);
      total += row[j];
    }
    for (int32_t j = 0; j < count && total != 0; ++j) {
      row[j] /= total;
      largest = std::max(largest, row[j]);
    }
    axis.first.push_back(first);
    axis.count.push_back(count);
  }
  axis.precision = choose_precision(largest);
  axis.weights.reserve(exact.size());
  for (const double g : exact) {
    const double scaled = g * static_cast<double>(1 << axis.precision);
    axis.weights.push_back(static_cast<int16_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return axis;
}

std::vector<uint8_t> resize_rgb(const std::vector<uint8_t>& rgb, int32_t width, int32_t height,
                                int32_t to_width, int32_t to_height,
                                ViewParams::Resample resample) {
  const size_t row_in = size_t{3} * static_cast<size_t>(width);
  const size_t row_out = size_t{3} * static_cast<size_t>(to_width);
  std::vector<uint8_t> wide;
  const std::vector<uint8_t>* source = &rgb;
  if (to_width != width) {
    const AxisWeights axis = make_axis_weights(width, to_width, resample);
    wide.resize(row_out * static_cast<size_t>(height));
    for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
      horizontal_row(axis, rgb.data() + row_in * y, wide.data() + row_out * y);
    }
    source = &wide;
  }
  if (to_height == height) return source == &rgb ? rgb : std::move(wide);
  const AxisWeights axis = make_axis_weights(height, to_height, resample);
  std::vector<uint8_t> out(row_out * static_cast<size_t>(to_height));
  for (size_t y = 0; y < static_cast<size_t>(to_height); ++y) {
    vertical_row(axis, y, source->data(), row_out, out.data() + row_out * y);
  }
  return out;
}

}  // namespace okibi::image
