// Keys and values into their stored form, one head's row at a time.
#include "cpu/kernels/avx2/nonlinear.h"
#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

void store_f16(const float* x, int64_t n, uint8_t* dst) {
  for (int64_t i = 0; i < n; i += 8) {
    const int64_t count = n - i < 8 ? n - i : 8;
    alignas(16) uint8_t h[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(h),
                    _mm256_cvtps_ph(load_tail(x + i, tail_mask(i, n)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __builtin_memcpy(dst + 2 * i, h, static_cast<uint64_t>(2 * count));
  }
}

// d = max|x| / 127; q = x * (127 / max|x|) rounded to the nearest even integer.
void store_q8_0(const float* x, int64_t n, uint8_t* dst) {
  constexpr int64_t kBlock = 32, kBlockBytes = 34;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (int64_t i = 0; i < n; i += kBlock, dst += kBlockBytes) {
    __m256 v[4];
    __m256 magnitude = _mm256_setzero_ps();
    for (int k = 0; k < 4; ++k) {
      v[k] = _mm256_loadu_ps(x + i + 8 * k);
      magnitude = _mm256_max_ps(magnitude, _mm256_andnot_ps(sign, v[k]));
    }
    const float largest = max_lanes(magnitude);
    const bool tiny = largest < 1e-30f;
    const __m256 inverse = _mm256_set1_ps(tiny ? 0.0f : 127.0f / largest);
    const uint16_t d = tiny ? uint16_t{0} : static_cast<uint16_t>(_cvtss_sh(largest / 127.0f, 0));
    __builtin_memcpy(dst, &d, sizeof d);
    for (int k = 0; k < 4; ++k) {
      const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], inverse));
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(dst + 2 + 8 * k), _mm_packs_epi16(words, words));
    }
  }
}

}  // namespace

void install_kv_store(KernelTable& table) {  // f32 is a copy, which reference does as well
  table.kv_store[kKvF16] = store_f16;
  table.kv_store[kKvQ8_0] = store_q8_0;
}

}  // namespace okibi::cpu::avx2
