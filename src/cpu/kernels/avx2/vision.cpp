// Layer normalisation and the two forms of GELU that picture encoders use, one row at a time. The
// formulas and their constants are explained at kernels/reference/scalar_math.h.
#include "cpu/kernels/avx2/nonlinear.h"
#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

// x + bias at lane i, stored back.
inline __m256 add_bias(float* x, const float* bias, int64_t i, int64_t n) {
  const __m256i mask = tail_mask(i, n);
  __m256 v = load_tail(x + i, mask);
  if (bias == nullptr) return v;
  v = _mm256_add_ps(v, load_tail(bias + i, mask));
  store_tail(x + i, mask, v);
  return v;
}

inline __m256 centred(const float* x, __m256 mean, int64_t i, int64_t n) {
  const __m256i mask = tail_mask(i, n);
  return _mm256_and_ps(_mm256_sub_ps(load_tail(x + i, mask), mean), _mm256_castsi256_ps(mask));
}

void layer_norm(float* x, const float* bias, const float* gamma, const float* beta, int64_t n,
                float eps, float* out) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    low = _mm256_add_ps(low, add_bias(x, bias, i, n));
    high = _mm256_add_ps(high, add_bias(x, bias, i + 8, n));
  }
  const __m256 mean = _mm256_set1_ps(sum_lanes(low, high) / static_cast<float>(n));
  low = high = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m256 a = centred(x, mean, i, n), b = centred(x, mean, i + 8, n);
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  const float variance = sum_lanes(low, high) / static_cast<float>(n);
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(variance + eps));
  const __m256 inverse = _mm256_set1_ps(1.0f / _mm_cvtss_f32(root));
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = tail_mask(i, n);
    const __m256 v = _mm256_mul_ps(centred(x, mean, i, n), inverse);
    store_tail(out + i, mask,
               _mm256_fmadd_ps(v, load_tail(gamma + i, mask), load_tail(beta + i, mask)));
  }
}

inline __m256 gelu_tanh(__m256 s) {
  const __m256 g =
      _mm256_mul_ps(s, _mm256_fmadd_ps(_mm256_mul_ps(s, s), _mm256_set1_ps(0x1.2444f2p-4f),
                                       _mm256_set1_ps(0x1.988454p+0f)));
  const __m256 e = exp_nonpositive(_mm256_or_ps(g, _mm256_set1_ps(-0.0f)));
  const __m256 positive = _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_GT_OQ);
  const __m256 numerator = _mm256_blendv_ps(_mm256_mul_ps(s, e), s, positive);
  return _mm256_div_ps(numerator, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

inline __m256 gelu_erf(__m256 s) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), s);
  const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(a, _mm256_set1_ps(0x1.333334p-2f), one));
  __m256 p = _mm256_set1_ps(0x1.273a5ep-5f);
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(-0x1.4510dp-3f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.abfee2p-3f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(-0x1.cbacfp-5f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.09f03p-3f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.97a278p-4f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.eede32p-4f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.e9fc0cp-4f));
  const __m256 e = exp_nonpositive(_mm256_mul_ps(_mm256_mul_ps(a, a), _mm256_set1_ps(-0.5f)));
  const __m256 tail = _mm256_mul_ps(s, _mm256_mul_ps(e, _mm256_mul_ps(p, t)));
  const __m256 positive = _mm256_cmp_ps(s, _mm256_setzero_ps(), _CMP_GT_OQ);
  return _mm256_blendv_ps(tail, _mm256_sub_ps(s, tail), positive);
}

void gelu_tanh_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = tail_mask(i, n);
    const __m256 v = _mm256_add_ps(load_tail(x + i, mask), load_tail(bias + i, mask));
    store_tail(x + i, mask, gelu_tanh(v));
  }
}

void gelu_erf_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = tail_mask(i, n);
    const __m256 v = _mm256_add_ps(load_tail(x + i, mask), load_tail(bias + i, mask));
    store_tail(x + i, mask, gelu_erf(v));
  }
}

}  // namespace

void install_vision(KernelTable& table) {
  table.layer_norm = layer_norm;
  table.gelu_tanh = gelu_tanh_row;
  table.gelu_erf = gelu_erf_row;
}

}  // namespace okibi::cpu::avx2
