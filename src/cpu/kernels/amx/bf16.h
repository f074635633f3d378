// Rounding to bfloat16: to nearest, halves away from zero, which is one addition.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu {
namespace {
namespace amx_bf16 {

// The lanes of the vector at `i` that lie before n; none when i >= n.
inline __mmask16 mask_at(int64_t i, int64_t n) {
  return i >= n ? __mmask16{0} : avx512::tail_mask(i, n);
}

// bfloat16 of x in the upper halves of the lanes; the lower halves are garbage.
inline __m512i round_to_upper(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

// x rounded, as a float.
inline __m512 rounded(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(round_to_upper(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Lane i: bfloat16 of even[i] below, of odd[i] above.
inline __m512i pair_up(__m512 even, __m512 odd) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(round_to_upper(even), 16),
                                 round_to_upper(odd));
}

// 32 values in order: the upper halves of all lanes.
inline __m512i to_bf16(__m512 low, __m512 high) {
  const __m512i odd = _mm512_setr_epi32(0x030001, 0x070005, 0x0b0009, 0x0f000d, 0x130011, 0x170015,
                                        0x1b0019, 0x1f001d, 0x230021, 0x270025, 0x2b0029, 0x2f002d,
                                        0x330031, 0x370035, 0x3b0039, 0x3f003d);
  return _mm512_permutex2var_epi16(round_to_upper(low), odd, round_to_upper(high));
}

}  // namespace amx_bf16
}  // namespace
}  // namespace okibi::cpu
