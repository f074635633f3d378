// Vectors of 16 floats for the non-linear kernels of this level: tail masks, the fixed sum of 16
// lanes and an exponential. Everything is unnamed and inlined, so that no symbol leaves the object.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace okibi::cpu::avx512 {
namespace {

// The lanes of the vector at `i` that lie before n.
inline __mmask16 tail_mask(int64_t i, int64_t n) {
  return n - i >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (n - i)) - 1);
}

// Adds 16 lanes as a tree of neighbours: (0+1), (2+3), ... then pairs of those.
inline float sum_lanes(__m512 v) {
  v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
  v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
  v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, 0xb1));
  v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, 0x4e));
  return _mm512_cvtss_f32(v);
}

// exp(x) for x <= 0, at most 2 units in the last place off; 0 below ln(2^-126). With k = x / ln2
// rounded and r = x - k ln2 (ln2 in two parts): 2^k (1 + (r + r^2 P(r))), P fitted to 3.1e-9.
inline __m512 exp_nonpositive(__m512 x) {
  const __m512 lowest = _mm512_set1_ps(-0x1.5d589ep+6f);
  const __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.62e4p-1f), x);
  r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(0x1.6a23cep-10f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a20p-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
  const __m512 y = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r));
  // Not-less-than lets NaN through.
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ), y, k);
}

inline float exp_nonpositive(float x) {
  return _mm512_cvtss_f32(exp_nonpositive(_mm512_set1_ps(x)));
}

}  // namespace
}  // namespace okibi::cpu::avx512
