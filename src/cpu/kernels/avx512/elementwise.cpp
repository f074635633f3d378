// RMS normalisation and the gated SiLU, one row at a time.
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

void rms_norm(const float* x, const float* gamma, int64_t n, float eps, float* out) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(tail_mask(i, n), x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(mean + eps));
  const __m512 inverse = _mm512_set1_ps(1.0f / _mm_cvtss_f32(root));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, gamma + i)));
  }
}

// g / (1 + e^-g) through e^-|g|, which cannot overflow.
inline __m512 silu(__m512 g) {
  const __m512 e = exp_nonpositive(_mm512_or_ps(g, _mm512_set1_ps(-0.0f)));
  const __mmask16 positive = _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_GT_OQ);
  const __m512 numerator = _mm512_mask_mov_ps(_mm512_mul_ps(g, e), positive, g);
  return _mm512_div_ps(numerator, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m512 s = silu(_mm512_maskz_loadu_ps(mask, gate + i));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(mask, up + i)));
  }
}

}  // namespace

void install_elementwise(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.silu_mul = silu_mul;
}

}  // namespace okibi::cpu::avx512
