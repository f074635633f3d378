// Sixteen float32 lanes of this level, for kernels that are written once for all levels
// (kernels/shared/): the same names as in the other levels' lanes.h.
#pragma once

#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

struct Lanes {
  struct V {
    __m256 low, high;
  };
  static V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static V splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  // The first n lanes (all where n >= 16), the others zero.
  static V load(const float* p, int64_t n) {
    return {load_tail(p, tail_mask(0, n)), load_tail(p + 8, tail_mask(8, n))};
  }
  static void store(float* p, V v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static void store(float* p, V v, int64_t n) {
    store_tail(p, tail_mask(0, n), v.low);
    store_tail(p + 8, tail_mask(8, n), v.high);
  }
  static V add(V a, V b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static V sub(V a, V b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static V mul(V a, V b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static V div(V a, V b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static V max(V a, V b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  // a b + c, rounded once (the reference level rounds twice).
  static V fma(V a, V b, V c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  // All lanes, as a tree of neighbours.
  static float sum(V v) { return sum_lanes(v.low, v.high); }
  // exp of non-positive lanes.
  static V exp_nonpositive(V x) {
    return {avx2::exp_nonpositive(x.low), avx2::exp_nonpositive(x.high)};
  }
  // -|x|
  static V negative_magnitude(V x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_or_ps(x.low, sign), _mm256_or_ps(x.high, sign)};
  }
  // x > 0 ? a : b per lane.
  static V if_positive(V x, V a, V b) {
    const __m256 z = _mm256_setzero_ps();
    return {_mm256_blendv_ps(b.low, a.low, _mm256_cmp_ps(x.low, z, _CMP_GT_OQ)),
            _mm256_blendv_ps(b.high, a.high, _mm256_cmp_ps(x.high, z, _CMP_GT_OQ))};
  }
  static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
};

}  // namespace
}  // namespace okibi::cpu::avx2
