// Layer normalisation and the two forms of GELU that picture encoders use, one row at a time. The
// formulas and their constants are explained at kernels/reference/scalar_math.h.
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

void layer_norm(float* x, const float* bias, const float* gamma, const float* beta, int64_t n,
                float eps, float* out) {
  __m512 sums = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
    if (bias != nullptr) {
      v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias + i));
      _mm512_mask_storeu_ps(x + i, mask, v);
    }
    sums = _mm512_add_ps(sums, v);
  }
  const __m512 mean = _mm512_set1_ps(sum_lanes(sums) / static_cast<float>(n));
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 v = _mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), mean);
    squares = _mm512_fmadd_ps(v, v, squares);
  }
  const float variance = sum_lanes(squares) / static_cast<float>(n);
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(variance + eps));
  const __m512 inverse = _mm512_set1_ps(1.0f / _mm_cvtss_f32(root));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), mean);
    _mm512_mask_storeu_ps(
        out + i, mask,
        _mm512_fmadd_ps(_mm512_mul_ps(v, inverse), _mm512_maskz_loadu_ps(mask, gamma + i),
                        _mm512_maskz_loadu_ps(mask, beta + i)));
  }
}

inline __m512 gelu_tanh(__m512 s) {
  const __m512 g =
      _mm512_mul_ps(s, _mm512_fmadd_ps(_mm512_mul_ps(s, s), _mm512_set1_ps(0x1.2444f2p-4f),
                                       _mm512_set1_ps(0x1.988454p+0f)));
  const __m512 e = exp_nonpositive(_mm512_or_ps(g, _mm512_set1_ps(-0.0f)));
  const __mmask16 positive = _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_GT_OQ);
  const __m512 numerator = _mm512_mask_mov_ps(_mm512_mul_ps(s, e), positive, s);
  return _mm512_div_ps(numerator, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

inline __m512 gelu_erf(__m512 s) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), s);
  const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(a, _mm512_set1_ps(0x1.333334p-2f), one));
  __m512 p = _mm512_set1_ps(0x1.273a5ep-5f);
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0x1.4510dp-3f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.abfee2p-3f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0x1.cbacfp-5f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.09f03p-3f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.97a278p-4f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.eede32p-4f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.e9fc0cp-4f));
  const __m512 e = exp_nonpositive(_mm512_mul_ps(_mm512_mul_ps(a, a), _mm512_set1_ps(-0.5f)));
  const __m512 tail = _mm512_mul_ps(s, _mm512_mul_ps(e, _mm512_mul_ps(p, t)));
  const __mmask16 positive = _mm512_cmp_ps_mask(s, _mm512_setzero_ps(), _CMP_GT_OQ);
  return _mm512_mask_sub_ps(tail, positive, s, tail);
}

void gelu_tanh_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 v =
        _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, bias + i));
    _mm512_mask_storeu_ps(x + i, mask, gelu_tanh(v));
  }
}

void gelu_erf_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 v =
        _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, bias + i));
    _mm512_mask_storeu_ps(x + i, mask, gelu_erf(v));
  }
}

}  // namespace

void install_vision(KernelTable& table) {
  table.layer_norm = layer_norm;
  table.gelu_tanh = gelu_tanh_row;
  table.gelu_erf = gelu_erf_row;
}

}  // namespace okibi::cpu::avx512
