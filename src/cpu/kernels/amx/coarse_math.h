// Exponentials and GELU as exactly as bfloat16 needs them (half a unit is 2e-3 of the value).
#pragma once

#include <immintrin.h>

namespace okibi::cpu {
namespace {
namespace amx_bf16 {

// 2^x for any finite x to a relative 8e-5: with k = x rounded, 2^k P(x - k), P fitted so that its
// largest relative error on [-1/2, 1/2] is least.
inline __m512 coarse_exp2(__m512 x) {
  const __m512 k = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, k);
  __m512 p = _mm512_set1_ps(0x1.c3f76p-5f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.f0de1cp-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62f31ap-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fff692p-1f));
  return _mm512_scalef_ps(p, k);
}

// s (1 + tanh u) / 2 = s / (1 + e^-2u) with u = sqrt(2 / pi) (s + 0.044715 s^3), to a relative
// 2e-4. The constants are those of -2u / ln 2, which a large s makes infinite; 2^200 is infinite in
// float32 and gives 0.
inline __m512 coarse_gelu_tanh(__m512 s) {
  const __m512 v =
      _mm512_mul_ps(s, _mm512_fnmadd_ps(_mm512_mul_ps(s, s), _mm512_set1_ps(0.10294324f),
                                        _mm512_set1_ps(-2.3022082f)));
  const __m512 bounded =
      _mm512_max_ps(_mm512_set1_ps(-200.0f), _mm512_min_ps(_mm512_set1_ps(200.0f), v));
  const __m512 e = coarse_exp2(bounded);
  return _mm512_mul_ps(s, _mm512_rcp14_ps(_mm512_add_ps(e, _mm512_set1_ps(1.0f))));
}

// g / (1 + e^-g), to a relative 2e-4; beyond 2^200 the power is as good as infinite.
inline __m512 coarse_silu(__m512 g) {
  const __m512 v = _mm512_mul_ps(g, _mm512_set1_ps(-1.442695041f));
  const __m512 bounded =
      _mm512_max_ps(_mm512_set1_ps(-200.0f), _mm512_min_ps(_mm512_set1_ps(200.0f), v));
  return _mm512_mul_ps(g, _mm512_rcp14_ps(_mm512_add_ps(coarse_exp2(bounded), _mm512_set1_ps(1))));
}

}  // namespace amx_bf16
}  // namespace
}  // namespace okibi::cpu
