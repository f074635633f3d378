// Attention over one partition: the direct form for a few query rows (decoding), the choice of the
// tile form for many, the softmax between scores and values that both share, and the merge.
#include "cpu/kernels/avx2/attend_simd.h"
#include "cpu/kernels/avx2/attend_tile.h"
#include "cpu/kernels/avx2/nonlinear.h"

namespace okibi::cpu::avx2 {
namespace {

// From here on transposing 8 keys costs less than each row's own reduction.
constexpr int32_t kMinTileRows = 12;
constexpr int32_t kMaxRows = 64;  // query rows of a call

// Decoding reads each stored row once, in runs too short for the hardware to run far ahead: rows
// this many bytes ahead are asked for early (about 150 ns at 20 GB/s).
constexpr int64_t kPrefetchBytes = 3072;

inline void prefetch_row(const uint8_t* row, int64_t n_bytes) {
  for (int64_t i = 0; i < n_bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T0);
  }
}

// Dot products of kRows query rows with 4 / kRows keys: 4 pairs of accumulators (lanes 0-7, 8-15),
// reduced together. Lane r * kKeys + i of the result belongs to row r and key i.
template <int kType, int kRows>
inline __m128 dot_block(const Partition& p, const float* q, const uint8_t* const* keys) {
  constexpr int kKeys = 4 / kRows;
  __m256 acc[2][4];
#pragma GCC unroll 4
  for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const __m256 k = load_values<kType>(keys[i], half, p.k_dim);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[half][r * kKeys + i] = _mm256_mul_ps(_mm256_load_ps(q + r * p.k_padded + 8 * half), k);
      }
    }
  }
  for (int64_t c = 2; c < p.k_padded / 8; c += 2) {
#pragma GCC unroll 4
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const __m256 k = load_values<kType>(keys[i], c + half, p.k_dim);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          acc[half][r * kKeys + i] = _mm256_fmadd_ps(
              _mm256_load_ps(q + r * p.k_padded + 8 * (c + half)), k, acc[half][r * kKeys + i]);
        }
      }
    }
  }
  return _mm_add_ps(sum_lanes_of_4(acc[0]), sum_lanes_of_4(acc[1]));
}

// Scores of rows [row, row + kRows) with all keys of the partition.
template <int kType, int kRows>
void score_rows(const Partition& p, int32_t row, float scale) {
  constexpr int kKeys = 4 / kRows;
  float* scores = p.scores + int64_t{row} * kAttendPartition;
  const int64_t row_bytes = row_size<kType>(p.k_dim);
  const auto ahead = static_cast<int32_t>(kPrefetchBytes / row_bytes + 1);
  for (int32_t j = 0; j < p.n; j += kKeys) {
    for (int32_t i = j + ahead; i < j + ahead + kKeys && i < p.n; ++i) {
      prefetch_row(p.k[i], row_bytes);
    }
    alignas(16) float s[4];
    const __m128 dots = dot_block<kType, kRows>(p, p.q + row * p.k_padded, p.k + j);
    _mm_store_ps(s, _mm_mul_ps(dots, _mm_set1_ps(scale)));
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(scores + r * kAttendPartition + j, s + r * kKeys, kKeys * sizeof(float));
    }
  }
}

// o += p v over entries [begin, end) for kRows rows and kCols vectors from column `col` on.
template <int kType, int kRows, int kCols>
void accumulate_direct(const Partition& p, int32_t begin, int32_t end, const float* scores,
                       int64_t col, float* const* o) {
  __m256 acc[kRows][kCols];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kCols; ++i) acc[r][i] = _mm256_load_ps(o[r] + col + 8 * i);
  }
  constexpr int64_t kBytes = row_size<kType>(8 * kCols < 32 ? 32 : 8 * kCols);
  const int64_t row_bytes = row_size<kType>(p.v_dim);
  const auto ahead = static_cast<int32_t>(kPrefetchBytes / row_bytes + 1);
  for (int32_t j = begin; j < end; ++j) {
    if (j + ahead < end) prefetch_row(p.v[j + ahead] + row_size<kType>(col), kBytes);
#pragma GCC unroll 8
    for (int i = 0; i < kCols; ++i) {
      const __m256 v = load_values<kType>(p.v[j], col / 8 + i, p.v_dim);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        acc[r][i] =
            _mm256_fmadd_ps(_mm256_broadcast_ss(scores + r * kAttendPartition + j), v, acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kCols; ++i) _mm256_store_ps(o[r] + col + 8 * i, acc[r][i]);
  }
}

template <int kType, int kRows>
void accumulate_direct_rows(const Partition& p, int32_t begin, int32_t end, const float* scores,
                            float* const* o) {
  if (begin >= end) return;
  constexpr int kWide = 8 / kRows;  // as wide as the accumulators allow
  int64_t col = 0;
  for (; col + 8 * kWide <= p.v_padded; col += 8 * kWide) {
    accumulate_direct<kType, kRows, kWide>(p, begin, end, scores, col, o);
  }
  for (; col < p.v_padded; col += 16) {
    accumulate_direct<kType, kRows, 2>(p, begin, end, scores, col, o);
  }
}

// Turns the first n scores into weights; the record's m and l.
void softmax_row(float* scores, int32_t n, float* record) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 largest = lowest;
  for (int32_t j = 0; j < n; j += 8) {
    const __m256 mask = _mm256_castsi256_ps(tail_mask(j, n));
    largest = _mm256_max_ps(largest, _mm256_blendv_ps(lowest, _mm256_load_ps(scores + j), mask));
  }
  const float m = max_lanes(largest);
  const __m256 shift = _mm256_set1_ps(m);
  __m256 l[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int32_t j = 0; j < n; j += 8) {
    const __m256 e = exp_nonpositive(_mm256_sub_ps(_mm256_load_ps(scores + j), shift));
    const __m256 weights = _mm256_and_ps(e, _mm256_castsi256_ps(tail_mask(j, n)));
    _mm256_store_ps(scores + j, weights);
    l[j / 8 % 2] = _mm256_add_ps(l[j / 8 % 2], weights);
  }
  record[0] = m;
  record[1] = sum_lanes(l[0], l[1]);
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

template <int kType>
void list_rows(const AttendArgs& a, Partition& p) {
  for (int32_t i = 0; i < a.n_runs; ++i) {
    const KvRun& run = a.runs[i];
    for (int32_t j = 0; j < run.n; ++j, ++p.n) {
      p.k[p.n] = run.k + j * row_size<kType>(a.k_dim);
      p.v[p.n] = run.v + j * row_size<kType>(a.v_dim);
    }
  }
  for (int32_t j = 0; j < 8; ++j) p.k[p.n + j] = p.k[p.n - 1];
}

// Copies the queries, zero-padded to whole vectors, and clears the records' sums.
void prepare_rows(const AttendArgs& a, Partition& p, int32_t* n_keys, float** o) {
  int32_t r = 0;
  for (int32_t t = 0; t < a.n_queries; ++t) {
    for (int32_t h = 0; h < a.n_heads; ++h, ++r) {
      const float* q = a.q + t * a.q_query_stride + h * a.q_head_stride;
      for (int64_t i = 0; i < p.k_padded; i += 8) {
        _mm256_store_ps(p.q + r * p.k_padded + i, load_tail(q + i, tail_mask(i, p.k_dim)));
      }
      n_keys[r] = a.n_keys[t];
      o[r] = a.records + t * a.record_query_stride + h * a.record_head_stride + 16;
      for (int64_t i = 0; i < p.v_padded; i += 8) _mm256_store_ps(o[r] + i, _mm256_setzero_ps());
    }
  }
}

template <int kType>
void attend(const AttendArgs& a) {
  Partition p;
  p.k_dim = a.k_dim;
  p.v_dim = a.v_dim;
  p.k_padded = round_up_16(a.k_dim);
  p.v_padded = round_up_16(a.v_dim);
  p.n_rows = a.n_queries * a.n_heads;
  p.scores = a.scratch;
  p.q = p.scores + int64_t{p.n_rows} * kAttendPartition;
  p.keys = p.q + p.n_rows * p.k_padded;
  p.values = p.keys + 16 * p.k_padded;
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
  const __m256 old_weight = exp_nonpositive(_mm256_set1_ps(total[0] - m));
  const __m256 new_weight = exp_nonpositive(_mm256_set1_ps(part[0] - m));
  const __m256 l = _mm256_fmadd_ps(_mm256_set1_ps(total[1]), old_weight,
                                   _mm256_mul_ps(_mm256_set1_ps(part[1]), new_weight));
  total[0] = m;
  total[1] = _mm256_cvtss_f32(l);
  for (int64_t i = 16; i < 16 + round_up_16(v_dim); i += 8) {
    const __m256 added = _mm256_mul_ps(_mm256_load_ps(part + i), new_weight);
    _mm256_store_ps(total + i, _mm256_fmadd_ps(_mm256_load_ps(total + i), old_weight, added));
  }
}

void attend_finish(const float* total, int32_t v_dim, float* out) {
  const __m256 l = _mm256_set1_ps(total[1]);
  for (int64_t i = 0; i < v_dim; i += 8) {
    store_tail(out + i, tail_mask(i, v_dim), _mm256_div_ps(_mm256_load_ps(total + 16 + i), l));
  }
}

}  // namespace

void install_attend(KernelTable& table) {
  table.attend[kKvF32] = attend<kKvF32>;
  table.attend[kKvF16] = attend<kKvF16>;
  table.attend[kKvQ8_0] = attend<kKvQ8_0>;
  table.attend_name[kKvF32] = "avx2.attend_f32";
  table.attend_name[kKvF16] = "avx2.attend_f16";
  table.attend_name[kKvQ8_0] = "avx2.attend_q8_0";
  table.attend_merge = attend_merge;
  table.attend_finish = attend_finish;
}

}  // namespace okibi::cpu::avx2
