// Reading stored keys and values as vectors of 8 and what the two forms of attention of this level
// (attend.cpp, attend_tile.h) work on.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

template <int kType>
constexpr int64_t row_size(int64_t n) {
  return kType == kKvF32 ? 4 * n : kType == kKvF16 ? 2 * n : n / 32 * 34;
}

// Values 8 c .. 8 c + 7 of a stored row of n values, those from n on zero. Stored rows are readable
// past their end.
template <int kType>
inline __m256 load_values(const uint8_t* row, int64_t c, int64_t n) {
  if constexpr (kType == kKvF32) {
    const auto* x = reinterpret_cast<const float*>(row) + 8 * c;
    return 8 * c + 8 <= n ? _mm256_loadu_ps(x) : load_tail(x, tail_mask(8 * c, n));
  } else if constexpr (kType == kKvF16) {
    const __m256 v =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 16 * c)));
    return 8 * c + 8 <= n ? v : _mm256_and_ps(v, _mm256_castsi256_ps(tail_mask(8 * c, n)));
  } else {
    if (8 * c >= n) return _mm256_setzero_ps();
    const uint8_t* block = row + c / 4 * 34;
    uint16_t d;
    __builtin_memcpy(&d, block, sizeof d);
    const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 2 + (c % 4) * 8));
    return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(d)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
  }
}

// Lane i of the result: lanes 0-7 of v[i] as a tree of neighbours.
inline __m128 sum_lanes_of_4(const __m256* v) {
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

// Transposes 8 vectors of 8.
inline void transpose_8(__m256* v) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]);
    const __m256 d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

// A partition's rows, and the query rows (query token x head of the group) with how much of the
// partition each sees. Rows are padded to 16 values, the period of the lanes.
struct Partition {
  const uint8_t* k[kAttendPartition + 8];  // the last one repeated
  const uint8_t* v[kAttendPartition];
  int32_t n = 0;
  int32_t n_rows = 0;  // query rows
  int64_t k_dim = 0, v_dim = 0;
  int64_t k_padded = 0, v_padded = 0;
  float* q = nullptr;       // (n_rows, k_padded), zero-padded
  float* scores = nullptr;  // (n_rows, kAttendPartition)
  float* keys = nullptr;    // 8 keys, transposed: (k_padded, 8)
  float* values = nullptr;  // (kAttendValueRows, v_padded)
};

}  // namespace
}  // namespace okibi::cpu::avx2
