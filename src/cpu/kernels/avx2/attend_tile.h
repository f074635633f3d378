// Attention of many query rows on one partition: 8 keys at a time are converted and transposed, 32
// values at a time converted, and every query row meets them from cache. Lanes, trees and orders
// are those of the direct form, so the bits are too.
#pragma once

#include "cpu/kernels/avx2/attend_simd.h"

namespace okibi::cpu::avx2 {
namespace {

// Query rows at once: 4 x 2 accumulators of the 16 registers for scores; for values 2 x 4, beside
// the vector that is read and the broadcast weights.
constexpr int kScoreRows = 4;
constexpr int kValueRows = 2;

template <int kType>
void transpose_keys(const Partition& p, int32_t first) {
  for (int64_t c = 0; c < p.k_padded / 8; ++c) {
    __m256 v[8];
    for (int i = 0; i < 8; ++i) v[i] = load_values<kType>(p.k[first + i], c, p.k_dim);
    transpose_8(v);
    for (int i = 0; i < 8; ++i) _mm256_store_ps(p.keys + (8 * c + i) * 8, v[i]);
  }
}

// Scores of kRows query rows with the 8 transposed keys; vector lane = key. Two lanes of the dot
// product at a time, then their tree.
template <int kRows>
inline void score_block(const Partition& p, const float* q, float scale, float* scores) {
  __m256 pairs[8][kRows];
  for (int g = 0; g < 8; ++g) {
    __m256 lanes[2][kRows];
    const float* keys = p.keys + 2 * g * 8;
    const float* query = q + 2 * g;
#pragma GCC unroll 4
    for (int l = 0; l < 2; ++l) {
      const __m256 k = _mm256_load_ps(keys + 8 * l);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        lanes[l][r] = _mm256_mul_ps(_mm256_broadcast_ss(query + r * p.k_padded + l), k);
      }
    }
    for (int64_t c = 16; c < p.k_padded; c += 16) {
      keys += 128;
      query += 16;
#pragma GCC unroll 4
      for (int l = 0; l < 2; ++l) {
        const __m256 k = _mm256_load_ps(keys + 8 * l);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          lanes[l][r] =
              _mm256_fmadd_ps(_mm256_broadcast_ss(query + r * p.k_padded + l), k, lanes[l][r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) pairs[g][r] = _mm256_add_ps(lanes[0][r], lanes[1][r]);
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 low = _mm256_add_ps(_mm256_add_ps(pairs[0][r], pairs[1][r]),
                                     _mm256_add_ps(pairs[2][r], pairs[3][r]));
    const __m256 high = _mm256_add_ps(_mm256_add_ps(pairs[4][r], pairs[5][r]),
                                      _mm256_add_ps(pairs[6][r], pairs[7][r]));
    _mm256_store_ps(scores + r * kAttendPartition,
                    _mm256_mul_ps(_mm256_add_ps(low, high), _mm256_set1_ps(scale)));
  }
}

// o += p v for entries [begin, end) of kRows rows and kCols vectors, the values already converted.
template <int kRows, int kCols>
inline void accumulate_block(const Partition& p, int32_t first_value, int32_t begin, int32_t end,
                             const float* scores, int64_t col, float* const* o) {
  __m256 acc[kRows][kCols];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) acc[r][i] = _mm256_load_ps(o[r] + col + 8 * i);
  }
  const float* values = p.values + (begin - first_value) * p.v_padded + col;
  for (int32_t j = begin; j < end; ++j, values += p.v_padded) {
    __m256 weights[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      weights[r] = _mm256_broadcast_ss(scores + r * kAttendPartition + j);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) {
      const __m256 v = _mm256_load_ps(values + 8 * i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r][i] = _mm256_fmadd_ps(weights[r], v, acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) _mm256_store_ps(o[r] + col + 8 * i, acc[r][i]);
  }
}

template <int kRows>
inline void accumulate_rows(const Partition& p, int32_t first_value, int32_t begin, int32_t end,
                            const float* scores, float* const* o) {
  if (begin >= end) return;
  int64_t col = 0;
  for (; col + 32 <= p.v_padded; col += 32) {
    accumulate_block<kRows, 4>(p, first_value, begin, end, scores, col, o);
  }
  for (; col < p.v_padded; col += 16) {
    accumulate_block<kRows, 2>(p, first_value, begin, end, scores, col, o);
  }
}

inline int32_t min_of(int32_t a, int32_t b) {
  return a < b ? a : b;
}

template <int kType>
void score_tile(const Partition& p, float scale, const int32_t* n_keys) {
  for (int32_t first = 0; first < p.n; first += 8) {
    transpose_keys<kType>(p, first);
    int32_t r = 0;
    for (; r + kScoreRows <= p.n_rows; r += kScoreRows) {
      bool is_seen = false;
      for (int i = 0; i < kScoreRows; ++i) is_seen |= n_keys[r + i] > first;
      if (!is_seen) continue;
      score_block<kScoreRows>(p, p.q + r * p.k_padded, scale,
                              p.scores + int64_t{r} * kAttendPartition + first);
    }
    for (; r < p.n_rows; ++r) {
      score_block<1>(p, p.q + r * p.k_padded, scale,
                     p.scores + int64_t{r} * kAttendPartition + first);
    }
  }
}

// `o` of each row starts at zero. Rows of a block that see less than the others of it stop at their
// own end: a product with a zero weight could still change the sign of a zero.
template <int kType>
void accumulate_tile(const Partition& p, const int32_t* n_keys, float* const* o) {
  for (int32_t first = 0; first < p.n; first += kAttendValueRows) {
    const int32_t last = min_of(first + kAttendValueRows, p.n);
    for (int32_t j = first; j < last; ++j) {
      for (int64_t c = 0; c < p.v_padded / 8; ++c) {
        _mm256_store_ps(p.values + (j - first) * p.v_padded + 8 * c,
                        load_values<kType>(p.v[j], c, p.v_dim));
      }
    }
    int32_t r = 0;
    for (; r + kValueRows <= p.n_rows; r += kValueRows) {
      int32_t common = last;
      for (int i = 0; i < kValueRows; ++i) common = min_of(common, n_keys[r + i]);
      const float* scores = p.scores + int64_t{r} * kAttendPartition;
      accumulate_rows<kValueRows>(p, first, first, common, scores, o + r);
      const int32_t rest = common > first ? common : first;
      for (int i = 0; i < kValueRows; ++i) {
        accumulate_rows<1>(p, first, rest, min_of(last, n_keys[r + i]),
                           scores + i * kAttendPartition, o + r + i);
      }
    }
    for (; r < p.n_rows; ++r) {
      accumulate_rows<1>(p, first, first, min_of(last, n_keys[r]),
                         p.scores + int64_t{r} * kAttendPartition, o + r);
    }
  }
}

}  // namespace
}  // namespace okibi::cpu::avx2
