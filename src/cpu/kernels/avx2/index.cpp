// Index kernels of this level: 4 heads by 16 keys are 8 of the 16 registers.
#include "cpu/kernels/shared/index.h"
#include "cpu/kernels/avx2/attend_simd.h"
#include "cpu/kernels/avx2/lanes.h"

namespace okibi::cpu::avx2 {
namespace {

struct IndexLanes : Lanes {
  static constexpr int kDirectKeys = 1, kTileVectors = 1, kTileLanes = 1;
  static uint32_t greater(V a, V b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
    return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 8;
  }
  static void transpose(const float* const* rows, int64_t c, float* out, int64_t stride) {
    for (int part = 0; part < 4; ++part) {
      const int row = 8 * (part & 1), column = 8 * (part >> 1);
      __m256 v[8];
      for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(rows[row + i] + c + column);
      transpose_8(v);
      for (int i = 0; i < 8; ++i) _mm256_store_ps(out + (column + i) * stride + row, v[i]);
    }
  }
  static int32_t keep(uint32_t mask, V scores, const uint32_t* blocks, float* to_scores,
                      uint32_t* to_blocks) {
    alignas(32) float s[16];
    store(s, scores);
    return keep_lanes(
        mask, s, [=](int i) { return blocks[i]; }, to_scores, to_blocks);
  }
  static int32_t keep_from(uint32_t mask, V scores, uint32_t first, float* to_scores,
                           uint32_t* to_blocks) {
    alignas(32) float s[16];
    store(s, scores);
    return keep_lanes(
        mask, s, [=](int i) { return first + static_cast<uint32_t>(i); }, to_scores, to_blocks);
  }
  static void prefetch(const float* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_far(const float* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
};

}  // namespace

IndexKernels index_kernels() {
  return make_shared_index_kernels<IndexLanes>("avx2.index");
}

}  // namespace okibi::cpu::avx2
