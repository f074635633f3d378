// Index kernels in plain C++.
#include "cpu/kernels/shared/index.h"
#include "cpu/kernels/reference/lanes.h"

namespace okibi::cpu::reference {
namespace {

struct IndexLanes : Lanes {
  static constexpr int kDirectKeys = 1, kTileVectors = 1, kTileLanes = 1;
  static uint32_t greater(const V& a, const V& b) {
    uint32_t mask = 0;
    for (int i = 0; i < kLanes; ++i) mask |= (a.x[i] > b.x[i] ? 1u : 0u) << i;
    return mask;
  }
  static void transpose(const float* const* rows, int64_t c, float* out, int64_t stride) {
    for (int i = 0; i < kLanes; ++i) {
      for (int r = 0; r < kLanes; ++r) out[i * stride + r] = rows[r][c + i];
    }
  }
  static int32_t keep(uint32_t mask, const V& scores, const uint32_t* blocks, float* to_scores,
                      uint32_t* to_blocks) {
    return keep_lanes(
        mask, scores.x, [=](int i) { return blocks[i]; }, to_scores, to_blocks);
  }
  static int32_t keep_from(uint32_t mask, const V& scores, uint32_t first, float* to_scores,
                           uint32_t* to_blocks) {
    return keep_lanes(
        mask, scores.x, [=](int i) { return first + static_cast<uint32_t>(i); }, to_scores,
        to_blocks);
  }
  static void prefetch(const float*) {}
  static void prefetch_far(const float*) {}
};

}  // namespace

IndexKernels index_kernels() {
  return make_shared_index_kernels<IndexLanes>("reference.index");
}

}  // namespace okibi::cpu::reference
