// Attention over one partition: the direct form for a few query rows (decoding), the choice of the
// tile form for many, the softmax between scores and values that both share, and the merge.
#include "cpu/kernels/avx512/attend_simd.h"
#include "cpu/kernels/avx512/attend_tile.h"
#include "cpu/kernels/avx512/nonlinear.h"

namespace okibi::cpu::avx512 {
namespace {

// From here on transposing 16 keys (64 shuffles a chunk) costs less than each row's own reduction.
constexpr int32_t kMinTileRows = 12;
constexpr int32_t kMaxRows = 64;  // query rows of a call

// Decoding reads each stored row once, in runs too short for the hardware to run far ahead: rows
// this many bytes ahead are asked for early (about 150 ns at 20 GB/s).
constexpr int64_t kPrefetchBytes = 3072;

// Dot products of kRows query rows with 16 / kRows keys: 16 accumulators, reduced together. Lane
// r * kKeys + i of the result belongs to row r and key i.
template <int kType, int kRows>
inline __m512 dot_block(const Partition& p, const float* q, const uint8_t* const* keys) {
  constexpr int kKeys = 16 / kRows;
  const int64_t stride = 16 * p.k_chunks;
  __m512 acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < kKeys; ++i) {
    const __m512 k = load_values<kType>(keys[i], 0, p.k_mask(0));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      acc[r * kKeys + i] = _mm512_mul_ps(_mm512_load_ps(q + r * stride), k);
    }
  }
  for (int64_t c = 1; c < p.k_chunks; ++c) {
    const __mmask16 mask = p.k_mask(c);
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      const __m512 k = load_values<kType>(keys[i], c, mask);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        acc[r * kKeys + i] =
            _mm512_fmadd_ps(_mm512_load_ps(q + r * stride + 16 * c), k, acc[r * kKeys + i]);
      }
    }
  }
  return sum_lanes_of_16(acc);
}

// Scores of rows [row, row + kRows) with all keys of the partition.
template <int kType, int kRows>
void score_rows(const Partition& p, int32_t row, float scale) {
  constexpr int kKeys = 16 / kRows;
  float* scores = p.scores + int64_t{row} * kAttendPartition;
  const int64_t row_bytes = row_size<kType>(p.k_dim);
  const auto ahead = static_cast<int32_t>(kPrefetchBytes / row_bytes + 1);
  for (int32_t j = 0; j < p.n; j += kKeys) {
    for (int32_t i = j + ahead; i < j + ahead + kKeys && i < p.n; ++i) {
      prefetch_row(p.k[i], row_bytes);
    }
    alignas(64) float s[16];
    const __m512 dots = dot_block<kType, kRows>(p, p.q + row * 16 * p.k_chunks, p.k + j);
    _mm512_store_ps(s, _mm512_mul_ps(dots, _mm512_set1_ps(scale)));
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(scores + r * kAttendPartition + j, s + r * kKeys, kKeys * sizeof(float));
    }
  }
}

// o += p v over entries [0, n) for kRows rows and kCols vectors from chunk c on.
template <int kType, int kRows, int kCols>
void accumulate_direct(const Partition& p, int32_t begin, int32_t end, const float* scores,
                       int64_t c, float* const* o) {
  __m512 acc[kRows][kCols];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kCols; ++i) acc[r][i] = _mm512_load_ps(o[r] + 16 * (c + i));
  }
  const __mmask16 last_mask = p.v_mask(c + kCols - 1);
  constexpr int64_t kBytes = row_size<kType>(16 * kCols < 32 ? 32 : 16 * kCols);
  const int64_t row_bytes = row_size<kType>(p.v_dim);
  const auto ahead = static_cast<int32_t>(kPrefetchBytes / row_bytes + 1);
  for (int32_t j = begin; j < end; ++j) {
    if (j + ahead < end) prefetch_row(p.v[j + ahead] + row_size<kType>(16 * c), kBytes);
#pragma GCC unroll 16
    for (int i = 0; i < kCols; ++i) {
      const __mmask16 mask = i + 1 == kCols ? last_mask : __mmask16{0xffff};
      const __m512 v = load_values<kType>(p.v[j], c + i, mask);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        acc[r][i] = _mm512_fmadd_ps(_mm512_set1_ps(scores[r * kAttendPartition + j]), v, acc[r][i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kCols; ++i) _mm512_store_ps(o[r] + 16 * (c + i), acc[r][i]);
  }
}

// As wide as the accumulators allow, so that a value row is read in one go.
template <int kType, int kRows>
void accumulate_direct_rows(const Partition& p, int32_t begin, int32_t end, const float* scores,
                            float* const* o) {
  if (begin >= end) return;
  constexpr int kWide = 16 / kRows;
  int64_t c = 0;
  for (; c + kWide <= p.v_chunks; c += kWide) {
    accumulate_direct<kType, kRows, kWide>(p, begin, end, scores, c, o);
  }
  for (; c + 4 <= p.v_chunks; c += 4) {
    accumulate_direct<kType, kRows, 4>(p, begin, end, scores, c, o);
  }
  for (; c < p.v_chunks; ++c) accumulate_direct<kType, kRows, 1>(p, begin, end, scores, c, o);
}

template <int kType>
void attend_direct(const Partition& p, float scale, const int32_t* n_keys, float* const* o) {
  for (int32_t r = 0; r < p.n_rows;) {
    const int32_t left = p.n_rows - r;
    const int32_t n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    if (n == 4) score_rows<kType, 4>(p, r, scale);
    if (n == 2) score_rows<kType, 2>(p, r, scale);
    if (n == 1) score_rows<kType, 1>(p, r, scale);
    const float* scores = p.scores + int64_t{r} * kAttendPartition;
    int32_t common = n_keys[r];
    for (int32_t i = 0; i < n; ++i) {
      softmax_row(p.scores + int64_t{r + i} * kAttendPartition, n_keys[r + i], o[r + i] - 16);
      common = min_of(common, n_keys[r + i]);
    }
    if (n == 4) accumulate_direct_rows<kType, 4>(p, 0, common, scores, o + r);
    if (n == 2) accumulate_direct_rows<kType, 2>(p, 0, common, scores, o + r);
    if (n == 1) accumulate_direct_rows<kType, 1>(p, 0, common, scores, o + r);
    for (int32_t i = 0; i < n; ++i) {
      accumulate_direct_rows<kType, 1>(p, common, n_keys[r + i], scores + i * kAttendPartition,
                                       o + r + i);
    }
    r += n;
  }
}

// Copies the queries, zero-padded to whole vectors, and clears the records' sums.
void prepare_rows(const AttendArgs& a, Partition& p, int32_t* n_keys, float** o) {
  int32_t r = 0;
  for (int32_t t = 0; t < a.n_queries; ++t) {
    for (int32_t h = 0; h < a.n_heads; ++h, ++r) {
      const float* q = a.q + t * a.q_query_stride + h * a.q_head_stride;
      for (int64_t c = 0; c < p.k_chunks; ++c) {
        _mm512_store_ps(p.q + (r * p.k_chunks + c) * 16,
                        _mm512_maskz_loadu_ps(p.k_mask(c), q + 16 * c));
      }
      n_keys[r] = a.n_keys[t];
      o[r] = a.records + t * a.record_query_stride + h * a.record_head_stride + 16;
      for (int64_t c = 0; c < p.v_chunks; ++c) _mm512_store_ps(o[r] + 16 * c, _mm512_setzero_ps());
    }
  }
}

template <int kType>
void attend(const AttendArgs& a) {
  Partition p;
  p.k_dim = a.k_dim;
  p.v_dim = a.v_dim;
  p.k_chunks = round_up_16(a.k_dim) / 16;
  p.v_chunks = round_up_16(a.v_dim) / 16;
  p.k_tail = tail_mask(16 * (p.k_chunks - 1), a.k_dim);
  p.v_tail = tail_mask(16 * (p.v_chunks - 1), a.v_dim);
  p.n_rows = a.n_queries * a.n_heads;
  p.scores = a.scratch;
  p.q = p.scores + int64_t{p.n_rows} * kAttendPartition;
  p.keys = p.q + p.n_rows * 16 * p.k_chunks;
  p.values = p.keys + 256 * p.k_chunks;
  list_rows<kType>(a, p);
  int32_t n_keys[kMaxRows];
  float* o[kMaxRows];
  prepare_rows(a, p, n_keys, o);
  if (p.n_rows < kMinTileRows) return attend_direct<kType>(p, a.scale, n_keys, o);
  score_tile<kType>(p, a.scale, n_keys);
  for (int32_t r = 0; r < p.n_rows; ++r) {
    softmax_row(p.scores + int64_t{r} * kAttendPartition, n_keys[r], o[r] - 16);
  }
  accumulate_tile<kType>(p, n_keys, o);
}

void attend_merge(float* total, const float* part, int32_t v_dim) {
  const float m = part[0] > total[0] ? part[0] : total[0];
  const __m512 old_weight = exp_nonpositive(_mm512_set1_ps(total[0] - m));
  const __m512 new_weight = exp_nonpositive(_mm512_set1_ps(part[0] - m));
  const __m512 l = _mm512_fmadd_ps(_mm512_set1_ps(total[1]), old_weight,
                                   _mm512_mul_ps(_mm512_set1_ps(part[1]), new_weight));
  total[0] = m;
  total[1] = _mm512_cvtss_f32(l);
  for (int64_t i = 16; i < 16 + round_up_16(v_dim); i += 16) {
    const __m512 added = _mm512_mul_ps(_mm512_load_ps(part + i), new_weight);
    _mm512_store_ps(total + i, _mm512_fmadd_ps(_mm512_load_ps(total + i), old_weight, added));
  }
}

void attend_finish(const float* total, int32_t v_dim, float* out) {
  const __m512 l = _mm512_set1_ps(total[1]);
  for (int64_t i = 0; i < v_dim; i += 16) {
    _mm512_mask_storeu_ps(out + i, tail_mask(i, v_dim),
                          _mm512_div_ps(_mm512_load_ps(total + 16 + i), l));
  }
}

}  // namespace

void install_attend(KernelTable& table) {
  table.attend[kKvF32] = attend<kKvF32>;
  table.attend[kKvF16] = attend<kKvF16>;
  table.attend[kKvQ8_0] = attend<kKvQ8_0>;
  table.attend_name[kKvF32] = "avx512.attend_f32";
  table.attend_name[kKvF16] = "avx512.attend_f16";
  table.attend_name[kKvQ8_0] = "avx512.attend_q8_0";
  table.attend_merge = attend_merge;
  table.attend_finish = attend_finish;
}

}  // namespace okibi::cpu::avx512
