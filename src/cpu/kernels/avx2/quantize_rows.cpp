// Activation rows to the two int8 formats of kernel_table.h.
#include "cpu/kernels/avx2/linear.h"
#include "cpu/kernels/avx2/simd.h"

namespace okibi::cpu::avx2 {
namespace {

inline __m256 magnitude(__m256 x) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

inline float largest_lane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline __m256 largest_of_32(const float* x) {
  const __m256 a = _mm256_max_ps(magnitude(_mm256_loadu_ps(x)), magnitude(_mm256_loadu_ps(x + 8)));
  const __m256 b =
      _mm256_max_ps(magnitude(_mm256_loadu_ps(x + 16)), magnitude(_mm256_loadu_ps(x + 24)));
  return _mm256_max_ps(a, b);
}

struct BlockScale {
  float d, inverse;
};

inline BlockScale scale_of(float largest) {
  // Below this the inverse would overflow; an inverse of 0 makes all codes 0.
  if (largest < 1e-30f) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

// 32 codes: conversion rounds half to even, and packing needs no saturation within +-127.
inline __m256i quantize_32(const float* x, float inverse) {
  const __m256 s = _mm256_set1_ps(inverse);
  const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), s));
  const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), s));
  const __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), s));
  const __m256i d = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), s));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  // The packs work in 128-bit halves: lanes hold a0 b0 c0 d0 a1 b1 c1 d1.
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of the two groups of 16 codes, in the lowest lane of each half.
inline __m256i sums_of_16(__m256i q) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  __m256i v = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
  return _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0xb1));
}

void quantize_q8b32(const float* x, int64_t n, int8_t* q, float* d, int32_t* sums32) {
  for (int64_t b = 0; b < n / 32; ++b) {
    const BlockScale s = scale_of(largest_lane(largest_of_32(x + 32 * b)));
    const __m256i codes = quantize_32(x + 32 * b, s.inverse);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * b), codes);
    d[b] = s.d;
    const __m256i sums = sums_of_16(codes);
    sums32[b] = _mm256_extract_epi32(sums, 0) + _mm256_extract_epi32(sums, 4);
  }
}

void quantize_q8b256(const float* x, int64_t n, int8_t* q, float* d, int16_t* sums16) {
  for (int64_t b = 0; b < n / 256; ++b) {
    const float* block = x + 256 * b;
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < 256; i += 32) largest = _mm256_max_ps(largest, largest_of_32(block + i));
    const BlockScale s = scale_of(largest_lane(largest));
    d[b] = s.d;
    for (int i = 0; i < 256; i += 32) {
      const __m256i codes = quantize_32(block + i, s.inverse);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 256 * b + i), codes);
      const __m256i sums = sums_of_16(codes);
      int16_t* out = sums16 + 16 * b + i / 16;
      out[0] = static_cast<int16_t>(_mm256_extract_epi32(sums, 0));
      out[1] = static_cast<int16_t>(_mm256_extract_epi32(sums, 4));
    }
  }
}

}  // namespace

void install_quantize(KernelTable& table) {
  table.quantize_q8b32 = quantize_q8b32;
  table.quantize_q8b256 = quantize_q8b256;
}

}  // namespace okibi::cpu::avx2
