#include "model/vision/position_table.h"

#include <algorithm>
#include <cmath>

namespace okibi::model {

AxisWeights resize_weights(int32_t n, int32_t m, int32_t i) {
  const double scale = static_cast<double>(n) / m;
  const double reach = std::max(1.0, scale);
  const double centre = (i + 0.5) * scale;
  AxisWeights w;
  // Towards zero, as the reference cuts; centre - reach may lie below zero.
  w.first = std::max(0, static_cast<int32_t>(centre - reach + 0.5));
  const int32_t end = std::min(n, static_cast<int32_t>(centre + reach + 0.5));
  double sum = 0;
  for (int32_t j = w.first; j < end; ++j) {
    w.weights.push_back(std::max(0.0, 1.0 - std::abs(j + 0.5 - centre) / reach));
    sum += w.weights.back();
  }
  for (double& weight : w.weights) weight /= sum;
  return w;
}

std::vector<float> PositionTable::resize(int32_t grid_h, int32_t grid_w) const {
  if (grid_h == side_ && grid_w == side_) return values_;
  const auto width = static_cast<size_t>(width_);
  const auto side = static_cast<size_t>(side_);
  // Rows of the table first: (grid_h, side, width).
  std::vector<float> tall(static_cast<size_t>(grid_h) * side * width);
  std::vector<double> sums;
  for (int32_t y = 0; y < grid_h; ++y) {
    const AxisWeights w = resize_weights(side_, grid_h, y);
    sums.assign(side * width, 0.0);
    for (size_t j = 0; j < w.weights.size(); ++j) {
      const float* row = values_.data() + (static_cast<size_t>(w.first) + j) * side * width;
      for (size_t i = 0; i < side * width; ++i) sums[i] += w.weights[j] * row[i];
    }
    std::copy(sums.begin(), sums.end(), tall.begin() + static_cast<int64_t>(y * side * width));
  }
  std::vector<float> out(static_cast<size_t>(grid_h) * static_cast<size_t>(grid_w) * width);
  for (int32_t x = 0; x < grid_w; ++x) {
    const AxisWeights w = resize_weights(side_, grid_w, x);
    for (int32_t y = 0; y < grid_h; ++y) {
      sums.assign(width, 0.0);
      for (size_t j = 0; j < w.weights.size(); ++j) {
        const float* row =
            tall.data() +
            (static_cast<size_t>(y) * side + static_cast<size_t>(w.first) + j) * width;
        for (size_t i = 0; i < width; ++i) sums[i] += w.weights[j] * row[i];
      }
      std::copy(sums.begin(), sums.end(),
                out.begin() + (int64_t{y} * grid_w + x) * static_cast<int64_t>(width));
    }
  }
  return out;
}

std::span<const float> PositionTable::resized(int32_t grid_h, int32_t grid_w) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.grid_h == grid_h && k.grid_w == grid_w;
  });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  } else {
    if (kept_.size() == kKept) kept_.pop_back();
    kept_.push_front({grid_h, grid_w, resize(grid_h, grid_w)});
  }
  return kept_.front().values;
}

}  // namespace okibi::model
