// The innermost step of all int8 products: a vector of four codes of eight output rows against the
// same four activation codes of one or more rows.
#pragma once

#include "cpu/kernels/avx2/simd.h"

namespace okibi::cpu::avx2 {
namespace {

// Adds R rows' products of four codes of eight outputs to 16-bit sums.
template <bool kSigned, int R>
inline void add_products(__m256i w, const int8_t* q, int64_t q_stride, __m256i* sums) {
  if constexpr (kSigned) {
    // |w| as the unsigned operand holds -128 too; the sign goes to the activation, within +-127.
    const __m256i magnitude = _mm256_abs_epi8(w);
    for (int r = 0; r < R; ++r) {
      const __m256i a = _mm256_sign_epi8(broadcast4(q + r * q_stride), w);
      sums[r] = _mm256_add_epi16(sums[r], _mm256_maddubs_epi16(magnitude, a));
      keep(sums[r]);
    }
  } else {
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast4(q + r * q_stride);
      sums[r] = _mm256_add_epi16(sums[r], _mm256_maddubs_epi16(w, a));
      keep(sums[r]);
    }
  }
}

}  // namespace
}  // namespace okibi::cpu::avx2
