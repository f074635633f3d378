// Sixteen float32 lanes of this level, for kernels that are written once for all levels
// (kernels/shared/): the same names as in the other levels' lanes.h.
#pragma once

#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

struct Lanes {
  using V = __m512;
  static V zero() { return _mm512_setzero_ps(); }
  static V splat(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  // The first n lanes (all where n >= 16), the others zero.
  static V load(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(tail_mask(0, n), p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store(float* p, V v, int64_t n) { _mm512_mask_storeu_ps(p, tail_mask(0, n), v); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  // a b + c, rounded once (the reference level rounds twice).
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  // All lanes, as a tree of neighbours.
  static float sum(V v) { return sum_lanes(v); }
  // exp of non-positive lanes.
  static V exp_nonpositive(V x) { return avx512::exp_nonpositive(x); }
  // -|x|
  static V negative_magnitude(V x) { return _mm512_or_ps(x, splat(-0.0f)); }
  // x > 0 ? a : b per lane.
  static V if_positive(V x, V a, V b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, zero(), _CMP_GT_OQ), a);
  }
  static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
};

}  // namespace
}  // namespace okibi::cpu::avx512
