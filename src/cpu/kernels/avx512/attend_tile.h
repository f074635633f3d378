// Attention of many query rows on one partition: 16 keys at a time are converted and transposed, 32
// values at a time converted, and every query row meets them from cache. Lanes, trees and orders
// are those of the direct form, so the bits are too.
#pragma once

#include "cpu/kernels/avx512/attend_simd.h"

namespace okibi::cpu::avx512 {
namespace {

// Query rows at once: 4 x 4 accumulators of the 32 registers, beside 4 partial sums, a key vector
// and the broadcasts that the multiply reads from memory.
constexpr int kTileBlock = 4;

template <int kType>
void transpose_keys(const Partition& p, int32_t first) {
  for (int64_t c = 0; c < p.k_chunks; ++c) {
    __m512 v[16];
    for (int i = 0; i < 16; ++i) v[i] = load_values<kType>(p.k[first + i], c, p.k_mask(c));
    transpose_16(v);
    for (int i = 0; i < 16; ++i) _mm512_store_ps(p.keys + (16 * c + i) * 16, v[i]);
  }
}

// Scores of kRows query rows with the 16 transposed keys; lane index = key. For each group of four
// lanes of the dot product, their sums over the chunks, then (0+1)+(2+3); the groups the same way.
template <int kRows>
inline void score_block(const Partition& p, const float* q, float scale, float* scores) {
  const int64_t stride = 16 * p.k_chunks;
  __m512 groups[4][kRows];
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    __m512 lanes[4][kRows];
    const float* keys = p.keys + 4 * g * 16;
    const float* query = q + 4 * g;
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) {
      const __m512 k = _mm512_load_ps(keys + 16 * l);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        lanes[l][r] = _mm512_mul_ps(_mm512_set1_ps(query[r * stride + l]), k);
      }
    }
    for (int64_t c = 1; c < p.k_chunks; ++c) {
      keys += 256;
      query += 16;
#pragma GCC unroll 4
      for (int l = 0; l < 4; ++l) {
        const __m512 k = _mm512_load_ps(keys + 16 * l);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          lanes[l][r] = _mm512_fmadd_ps(_mm512_set1_ps(query[r * stride + l]), k, lanes[l][r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      groups[g][r] = _mm512_add_ps(_mm512_add_ps(lanes[0][r], lanes[1][r]),
                                   _mm512_add_ps(lanes[2][r], lanes[3][r]));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(groups[0][r], groups[1][r]),
                                     _mm512_add_ps(groups[2][r], groups[3][r]));
    _mm512_store_ps(scores + r * kAttendPartition, _mm512_mul_ps(sum, _mm512_set1_ps(scale)));
  }
}

// o += p v for entries [begin, end) of kRows rows and kCols vectors, the values already converted.
template <int kRows, int kCols>
inline void accumulate_block(const Partition& p, int32_t first_value, int32_t begin, int32_t end,
                             const float* scores, int64_t c, float* const* o) {
  __m512 acc[kRows][kCols];
  const int64_t stride = 16 * p.v_chunks;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) acc[r][i] = _mm512_load_ps(o[r] + 16 * (c + i));
  }
  const float* values = p.values + (begin - first_value) * stride + 16 * c;
  for (int32_t j = begin; j < end; ++j, values += stride) {
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) {
      const __m512 v = _mm512_load_ps(values + 16 * i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][i] = _mm512_fmadd_ps(_mm512_set1_ps(scores[r * kAttendPartition + j]), v, acc[r][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kCols; ++i) _mm512_store_ps(o[r] + 16 * (c + i), acc[r][i]);
  }
}

template <int kRows>
inline void accumulate_rows(const Partition& p, int32_t first_value, int32_t begin, int32_t end,
                            const float* scores, float* const* o) {
  if (begin >= end) return;
  int64_t c = 0;
  for (; c + 4 <= p.v_chunks; c += 4) {
    accumulate_block<kRows, 4>(p, first_value, begin, end, scores, c, o);
  }
  for (; c < p.v_chunks; ++c) {
    accumulate_block<kRows, 1>(p, first_value, begin, end, scores, c, o);
  }
}

inline int32_t min_of(int32_t a, int32_t b) {
  return a < b ? a : b;
}

template <int kType>
void score_tile(const Partition& p, float scale, const int32_t* n_keys) {
  for (int32_t first = 0; first < p.n; first += 16) {
    transpose_keys<kType>(p, first);
    int32_t r = 0;
    for (; r + kTileBlock <= p.n_rows; r += kTileBlock) {
      bool is_seen = false;
      for (int i = 0; i < kTileBlock; ++i) is_seen |= n_keys[r + i] > first;
      if (!is_seen) continue;
      score_block<kTileBlock>(p, p.q + r * 16 * p.k_chunks, scale,
                              p.scores + int64_t{r} * kAttendPartition + first);
    }
    for (; r < p.n_rows; ++r) {
      score_block<1>(p, p.q + r * 16 * p.k_chunks, scale,
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
      for (int64_t c = 0; c < p.v_chunks; ++c) {
        _mm512_store_ps(p.values + (j - first) * 16 * p.v_chunks + 16 * c,
                        load_values<kType>(p.v[j], c, p.v_mask(c)));
      }
    }
    int32_t r = 0;
    for (; r + kTileBlock <= p.n_rows; r += kTileBlock) {
      int32_t common = last;
      for (int i = 0; i < kTileBlock; ++i) common = min_of(common, n_keys[r + i]);
      const float* scores = p.scores + int64_t{r} * kAttendPartition;
      accumulate_rows<kTileBlock>(p, first, first, common, scores, o + r);
      const int32_t rest = common > first ? common : first;
      for (int i = 0; i < kTileBlock; ++i) {
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
}  // namespace okibi::cpu::avx512
