// Vectors of 8 floats for the non-linear kernels of this level, used in pairs where a sum is
// defined in 16 lanes: tail masks, the fixed sum, an exponential. Everything is unnamed and
// inlined, so that no symbol leaves the object. Orders and polynomial are those of the avx512
// level.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace okibi::cpu::avx2 {
namespace {

// The lanes of the vector at `i` that lie before n; none when i >= n.
inline __m256i tail_mask(int64_t i, int64_t n) {
  const int64_t left = n - i;
  const auto count = static_cast<int32_t>(left > 8 ? 8 : left);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline __m256 load_tail(const float* x, __m256i mask) {
  return _mm256_maskload_ps(x, mask);
}
inline void store_tail(float* x, __m256i mask, __m256 v) {
  _mm256_maskstore_ps(x, mask, v);
}

// Adds 16 lanes, 0-7 in `low`, as a tree of neighbours: (0+1), (2+3), ... then pairs of those.
inline float sum_lanes(__m256 low, __m256 high) {
  low = _mm256_add_ps(low, _mm256_permute_ps(low, 0xb1));
  high = _mm256_add_ps(high, _mm256_permute_ps(high, 0xb1));
  low = _mm256_add_ps(low, _mm256_permute_ps(low, 0x4e));
  high = _mm256_add_ps(high, _mm256_permute_ps(high, 0x4e));
  const float a = _mm256_cvtss_f32(low) + _mm_cvtss_f32(_mm256_extractf128_ps(low, 1));
  const float b = _mm256_cvtss_f32(high) + _mm_cvtss_f32(_mm256_extractf128_ps(high, 1));
  return a + b;
}

inline float max_lanes(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_permute_ps(m, 0x4e));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_permute_ps(m, 0xb1)));
}

// exp(x) for x <= 0, at most 2 units in the last place off; 0 below ln(2^-126). With k = x / ln2
// rounded and r = x - k ln2 (ln2 in two parts): 2^k (1 + (r + r^2 P(r))), P fitted to 3.1e-9.
inline __m256 exp_nonpositive(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-0x1.5d589ep+6f);
  const __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.62e4p-1f), x);
  r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
  __m256 p = _mm256_set1_ps(0x1.6a23cep-10f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a20p-7f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
  const __m256 y = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127)), 23);
  // Not-less-than lets NaN through (its power is garbage, the product still NaN).
  return _mm256_and_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(power)),
                       _mm256_cmp_ps(x, lowest, _CMP_NLT_UQ));
}

}  // namespace
}  // namespace okibi::cpu::avx2
