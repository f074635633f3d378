// Reading stored keys and values as vectors, and the sums of 16 lanes of 16 vectors at once, for
// the forms of attention of this level (attend.cpp, attend_tile.h, attend_list.cpp).
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

template <int kType>
constexpr int64_t row_size(int64_t n) {
  return kType == kKvF32 ? 4 * n : kType == kKvF16 ? 2 * n : n / 32 * 34;
}

// Values 16 c .. 16 c + 15 of a stored row, those outside the mask zero. q8_0 rows have no tails.
template <int kType>
inline __m512 load_values(const uint8_t* row, int64_t c, __mmask16 mask) {
  if constexpr (kType == kKvF32) {
    return _mm512_maskz_loadu_ps(mask, row + 64 * c);
  } else if constexpr (kType == kKvF16) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 32 * c));
  } else {
    const uint8_t* block = row + c / 2 * 34;
    uint16_t d;
    __builtin_memcpy(&d, block, sizeof d);
    const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + (c % 2) * 16));
    return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(d)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
  }
}

// Lane i of the result is the sum of the 16 lanes of v[i], added as sum_lanes does.
inline __m512 sum_lanes_of_16(__m512* v) {
  // Neighbours inside 128 bits: (0+1, 2+3) of two vectors side by side, then ((0+1)+(2+3)) of four.
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x88),
                         _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xdd));
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x88),
                         _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xdd));
  }
  // Each vector now holds four inputs in every 128-bit part; parts 0+1 and 2+3, then the halves.
  for (int i = 0; i < 2; ++i) {
    v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xdd));
  }
  return _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88),
                       _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
}

// Transposes 16 vectors of 16.
inline void transpose_16(__m512* v) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
    const __m512 c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]);
    const __m512 d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

// What both forms work on: a partition's rows, and the query rows (query token x head of the
// group) with how much of the partition each sees.
struct Partition {
  const uint8_t* k[kAttendPartition + 16];  // the last one repeated
  const uint8_t* v[kAttendPartition + 16];
  int32_t n = 0;
  int32_t n_rows = 0;  // query rows
  int64_t k_dim = 0, v_dim = 0;
  int64_t k_chunks = 0, v_chunks = 0;
  __mmask16 k_tail = 0, v_tail = 0;  // lanes of the last chunk
  float* q = nullptr;                // (n_rows, 16 k_chunks), zero-padded
  float* scores = nullptr;           // (n_rows, kAttendPartition)
  float* keys = nullptr;             // 16 keys, transposed: (16 k_chunks, 16)
  float* values = nullptr;           // (kAttendValueRows, 16 v_chunks)
  __mmask16 k_mask(int64_t c) const { return c + 1 == k_chunks ? k_tail : __mmask16{0xffff}; }
  __mmask16 v_mask(int64_t c) const { return c + 1 == v_chunks ? v_tail : __mmask16{0xffff}; }
};

template <int kType>
inline void list_rows(const AttendArgs& a, Partition& p) {
  for (int32_t i = 0; i < a.n_runs; ++i) {
    const KvRun& run = a.runs[i];
    for (int32_t j = 0; j < run.n; ++j, ++p.n) {
      p.k[p.n] = run.k + j * row_size<kType>(a.k_dim);
      p.v[p.n] = run.v + j * row_size<kType>(a.v_dim);
    }
  }
  for (int32_t j = 0; j < 16; ++j) {
    p.k[p.n + j] = p.k[p.n - 1];
    p.v[p.n + j] = p.v[p.n - 1];
  }
}

// Turns the first n scores into weights; the record's m and l.
[[maybe_unused]] inline void softmax_row(float* scores, int32_t n, float* record) {
  __m512 largest = _mm512_set1_ps(-__builtin_inff());
  for (int32_t j = 0; j < n; j += 16) {
    largest = _mm512_mask_max_ps(largest, tail_mask(j, n), largest, _mm512_load_ps(scores + j));
  }
  const float m = _mm512_reduce_max_ps(largest);
  const __m512 shift = _mm512_set1_ps(m);
  __m512 l = _mm512_setzero_ps();
  for (int32_t j = 0; j < n; j += 16) {
    const __m512 e = exp_nonpositive(_mm512_sub_ps(_mm512_load_ps(scores + j), shift));
    const __m512 weights = _mm512_maskz_mov_ps(tail_mask(j, n), e);
    _mm512_store_ps(scores + j, weights);
    l = _mm512_add_ps(l, weights);
  }
  record[0] = m;
  record[1] = sum_lanes(l);
}

inline void prefetch_row(const uint8_t* row, int64_t n_bytes) {
  for (int64_t i = 0; i < n_bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T0);
  }
}

}  // namespace
}  // namespace okibi::cpu::avx512
