// Activation rows to the two int8 formats of kernel_table.h, to the bit of the reference.
#include <immintrin.h>

#include "cpu/kernels/avx512/linear.h"

namespace okibi::cpu {
namespace {

// Below this the inverse scale would overflow; the block counts as zero.
constexpr float kSmallest = 1e-30f;

// kVectors x 16 values to int8 under one scale; the codes stay in `q`. Returns the scale.
template <int kVectors>
[[gnu::always_inline]] inline float quantize_block(const float* x, __m128i* q) {
  __m512 v[kVectors], largest = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    v[i] = _mm512_loadu_ps(x + 16 * i);
    largest = _mm512_max_ps(largest, _mm512_abs_ps(v[i]));
  }
  const float most = _mm512_reduce_max_ps(largest);
  const bool is_zero = most < kSmallest;
  const __m512 inverse = _mm512_set1_ps(is_zero ? 0.0f : 127.0f / most);
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    const __m512i rounded = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v[i], inverse),
                                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    q[i] = _mm512_cvtepi32_epi8(rounded);
  }
  return is_zero ? 0.0f : most / 127.0f;
}

// Sum of 16 codes.
inline int32_t sum16(__m128i q) {
  const __m256i wide = _mm256_madd_epi16(_mm256_cvtepi8_epi16(q), _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

void quantize_q8b32(const float* x, int64_t n, int8_t* q, float* d, int32_t* sums32) {
  for (int64_t b = 0; b < n / 32; ++b) {
    __m128i codes[2];
    d[b] = quantize_block<2>(x + 32 * b, codes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 32 * b), codes[0]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 32 * b + 16), codes[1]);
    sums32[b] = sum16(codes[0]) + sum16(codes[1]);
  }
}

void quantize_q8b256(const float* x, int64_t n, int8_t* q, float* d, int16_t* sums16) {
  for (int64_t b = 0; b < n / 256; ++b) {
    __m128i codes[16];
    d[b] = quantize_block<16>(x + 256 * b, codes);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 256 * b + 16 * i), codes[i]);
      sums16[16 * b + i] = static_cast<int16_t>(sum16(codes[i]));
    }
  }
}

}  // namespace

namespace avx512 {

void install_quantize(KernelTable& table) {
  table.quantize_q8b32 = quantize_q8b32;
  table.quantize_q8b256 = quantize_q8b256;
}

}  // namespace avx512
}  // namespace okibi::cpu
