// RMS normalisation and the gated SiLU, one row at a time.
#include "cpu/kernels/avx2/nonlinear.h"
#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

void rms_norm(const float* x, const float* gamma, int64_t n, float eps, float* out) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m256 a = load_tail(x + i, tail_mask(i, n));
    const __m256 b = load_tail(x + i + 8, tail_mask(i + 8, n));
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  const float mean = sum_lanes(low, high) / static_cast<float>(n);
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(mean + eps));
  const __m256 inverse = _mm256_set1_ps(1.0f / _mm_cvtss_f32(root));
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = tail_mask(i, n);
    const __m256 v = _mm256_mul_ps(load_tail(x + i, mask), inverse);
    store_tail(out + i, mask, _mm256_mul_ps(v, load_tail(gamma + i, mask)));
  }
}

// g / (1 + e^-g) through e^-|g|, which cannot overflow.
inline __m256 silu(__m256 g) {
  const __m256 e = exp_nonpositive(_mm256_or_ps(g, _mm256_set1_ps(-0.0f)));
  const __m256 positive = _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_GT_OQ);
  const __m256 numerator = _mm256_blendv_ps(_mm256_mul_ps(g, e), g, positive);
  return _mm256_div_ps(numerator, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = tail_mask(i, n);
    const __m256 s = silu(load_tail(gate + i, mask));
    store_tail(out + i, mask, _mm256_mul_ps(s, load_tail(up + i, mask)));
  }
}

}  // namespace

void install_elementwise(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.silu_mul = silu_mul;
}

}  // namespace okibi::cpu::avx2
