// The learned positions of a picture encoder, resized to a view's grid of patches: bilinear, half-
// pixel centres, with the wider filter when shrinking (spec of LFM2-VL, 2.5). A resized table
// depends on the grid only and is kept, the latest few. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace okibi::model {

// The weights by which n old positions make new position i of m.
struct AxisWeights {
  int32_t first = 0;
  std::vector<double> weights;  // of first, first + 1, ...; their sum is 1
};
AxisWeights resize_weights(int32_t n, int32_t m, int32_t i);

class PositionTable {
 public:
  PositionTable() = default;
  // `values` (side * side, width), row index = side * y + x.
  PositionTable(int32_t side, int64_t width, std::vector<float> values)
      : side_(side), width_(width), values_(std::move(values)) {}

  // (grid_h * grid_w, width), row index = grid_w * y + x. Valid until the next call.
  std::span<const float> resized(int32_t grid_h, int32_t grid_w);

  // The most that resized tables of up to max_patches rows take.
  static uint64_t max_kept_bytes(int64_t max_patches, int64_t width) {
    return kKept * static_cast<uint64_t>(max_patches * width) * sizeof(float);
  }

 private:
  // Tiles and the thumbnails of a few kinds of picture.
  static constexpr size_t kKept = 6;
  struct Kept {
    int32_t grid_h, grid_w;
    std::vector<float> values;
  };
  std::vector<float> resize(int32_t grid_h, int32_t grid_w) const;

  int32_t side_ = 0;
  int64_t width_ = 0;
  std::vector<float> values_;
  std::list<Kept> kept_;  // latest first
};

}  // namespace okibi::model
