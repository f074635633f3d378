// Small vector helpers of the AVX2 kernels. All names are local to each file that includes this, so
// that no copy can serve code built for another level.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx2 {
namespace {

[[maybe_unused]] inline __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
[[maybe_unused]] inline __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// The value as it is now: additions before and after are not mixed. Compilers that rearrange a long
// sum into a tree need more registers than there are and spill.
[[maybe_unused]] inline void keep(__m256i& v) {
  asm("" : "+x"(v));
}

// Four activation codes (or a pair of 16-bit sums) in every lane.
[[maybe_unused]] inline __m256i broadcast4(const void* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return _mm256_set1_epi32(bits);
}

// Eight f16 values.
[[maybe_unused]] inline __m256 halves(const void* p) {
  return _mm256_cvtph_ps(load128(p));
}

[[maybe_unused]] inline __m256i low_nibbles(__m256i v) {
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
[[maybe_unused]] inline __m256i high_nibbles(__m256i v) {
  return low_nibbles(_mm256_srli_epi16(v, 4));
}

// Writes eight outputs of one row from output `first` on, as far as the matrix goes.
[[maybe_unused]] inline void store_outputs(const ProductArgs& args, int64_t row, int64_t first,
                                           __m256 acc) {
  float* out = args.out + row * args.out_stride + first;
  const __m256 result = _mm256_mul_ps(acc, _mm256_set1_ps(args.w.scale));
  const int64_t n = args.w.n_out - first;
  if (n >= 8) {
    const __m256 old = args.accumulate ? _mm256_loadu_ps(out) : _mm256_setzero_ps();
    _mm256_storeu_ps(out, args.accumulate ? _mm256_add_ps(old, result) : result);
    return;
  }
  alignas(32) float values[8];
  _mm256_store_ps(values, result);
  for (int64_t i = 0; i < n; ++i) out[i] = args.accumulate ? out[i] + values[i] : values[i];
}

// Transposes 8 x 8 floats held as rows.
[[maybe_unused]] inline void transpose8(__m256 r[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace okibi::cpu::avx2
