// Index kernels of this level: 2 lanes by 4 heads by 32 keys are 16 of the 32 registers, and each
// broadcast value of a query serves two multiply-adds, so that loads do not limit them.
#include "cpu/kernels/shared/index.h"
#include "cpu/kernels/avx512/attend_list.h"
#include "cpu/kernels/avx512/attend_simd.h"
#include "cpu/kernels/avx512/lanes.h"

namespace okibi::cpu::avx512 {
namespace {

struct IndexLanes : Lanes {
  static constexpr int kDirectKeys = 4, kTileVectors = 2, kTileLanes = 2;
  static uint32_t greater(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static void transpose(const float* const* rows, int64_t c, float* out, int64_t stride) {
    __m512 v[16];
    for (int i = 0; i < 16; ++i) v[i] = _mm512_loadu_ps(rows[i] + c);
    transpose_16(v);
    for (int i = 0; i < 16; ++i) _mm512_store_ps(out + i * stride, v[i]);
  }
  static int32_t keep_blocks(uint32_t mask, V scores, __m512i blocks, float* to_scores,
                             uint32_t* to_blocks) {
    const auto m = static_cast<__mmask16>(mask);
    _mm512_storeu_ps(to_scores, _mm512_maskz_compress_ps(m, scores));
    _mm512_storeu_si512(to_blocks, _mm512_maskz_compress_epi32(m, blocks));
    return __builtin_popcount(mask);
  }
  static int32_t keep(uint32_t mask, V scores, const uint32_t* blocks, float* to_scores,
                      uint32_t* to_blocks) {
    return keep_blocks(mask, scores, _mm512_loadu_si512(blocks), to_scores, to_blocks);
  }
  static int32_t keep_from(uint32_t mask, V scores, uint32_t first, float* to_scores,
                           uint32_t* to_blocks) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i blocks = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(first)), lanes);
    return keep_blocks(mask, scores, blocks, to_scores, to_blocks);
  }
  static V sums_of_16(V* v) { return sum_lanes_of_16(v); }
  static void prefetch(const float* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_far(const float* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
};

}  // namespace

IndexKernels index_kernels() {
  IndexKernels kernels = make_shared_index_kernels<IndexLanes>("avx512.index");
  install_attend_list(kernels);
  return kernels;
}

}  // namespace okibi::cpu::avx512
