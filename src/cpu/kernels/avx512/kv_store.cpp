// Keys and values into their stored form, one head's row at a time.
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

void store_f32(const float* x, int64_t n, uint8_t* dst) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    _mm512_mask_storeu_ps(dst + 4 * i, mask, _mm512_maskz_loadu_ps(mask, x + i));
  }
}

void store_f16(const float* x, int64_t n, uint8_t* dst) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = tail_mask(i, n);
    const __m256i h = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, x + i),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(dst + 2 * i, mask, h);
  }
}

// d = max|x| / 127; q = x * (127 / max|x|) rounded to the nearest even integer.
void store_q8_0(const float* x, int64_t n, uint8_t* dst) {
  constexpr int64_t kBlock = 32, kBlockBytes = 34;
  for (int64_t i = 0; i < n; i += kBlock, dst += kBlockBytes) {
    const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const bool tiny = largest < 1e-30f;
    const __m512 inverse = _mm512_set1_ps(tiny ? 0.0f : 127.0f / largest);
    const uint16_t d = tiny ? uint16_t{0} : static_cast<uint16_t>(_cvtss_sh(largest / 127.0f, 0));
    __builtin_memcpy(dst, &d, sizeof d);
    const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 2), _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 18), _mm512_cvtepi32_epi8(high));
  }
}

}  // namespace

void install_kv_store(KernelTable& table) {
  table.kv_store[kKvF32] = store_f32;
  table.kv_store[kKvF16] = store_f16;
  table.kv_store[kKvQ8_0] = store_q8_0;
}

}  // namespace okibi::cpu::avx512
