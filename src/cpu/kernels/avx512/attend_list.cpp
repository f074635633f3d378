// Attention of the 12 heads of one query over one partition of its list. Nothing is transposed or
// stored in between, as no other query shares the converted keys: 12 heads by 2 keys, then 12 heads
// by 2 vectors of values are 24 of the 32 accumulators, so that loads do not limit the
// multiply-adds. Lanes, trees and orders are those of attend.cpp, so the bits are too.
//
// Blocks are scattered over memory, too short for the hardware to run ahead in. Rows are asked for
// evenly: a key's own values while it is scored, and the next partition's keys while values are
// summed.
#include "cpu/kernels/avx512/attend_list.h"

#include "cpu/kernels/avx512/attend_simd.h"

namespace okibi::cpu::avx512 {
namespace {

constexpr int kHeads = kListHeads;
// From the second-level cache into the first.
constexpr int kAheadKeys = 6, kAheadValues = 12;

// The line (two of float32) of a row that holds vectors c and c + 1, c even.
template <int kType, _mm_hint kHint>
inline void prefetch_two(const uint8_t* row, int64_t c) {
  const auto* p = reinterpret_cast<const char*>(row) + row_size<kType>(32) * (c / 2);
  _mm_prefetch(p, kHint);
  if (kType == kKvF32) _mm_prefetch(p + 64, kHint);
}

// Keeps a value that two products share in a register: read for each, loads would be the limit.
inline void hold(__m512& x) {
  asm("" : "+v"(x));
}

// As sum_lanes_of_16 for 8 vectors: lanes 0-7 of the result.
inline __m256 sum_lanes_of_8(__m512* v) {
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x88),
                         _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x88),
                         _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xdd));
  }
  v[0] =
      _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88), _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
  return _mm512_castps512_ps256(_mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[0], 0x88),
                                              _mm512_shuffle_f32x4(v[0], v[0], 0xdd)));
}

// Scores of keys j and j + 1 for all heads: (2, kHeads). q is (k_chunks, kHeads, 16).
template <int kType>
inline void score_two(const Partition& p, int32_t j, __m512 scale, float* scores) {
  constexpr __mmask16 kAll = 0xffff;
  __m512 acc[2 * kHeads];
  const float* q = p.q;
  for (int64_t c = 0; c < p.k_chunks; ++c, q += 16 * kHeads) {
    // Key j's lines at even, those of j + 1 at odd vectors.
    prefetch_two<kType, _MM_HINT_T0>(p.k[j + kAheadKeys + (c & 1)], c);
    prefetch_two<kType, _MM_HINT_T1>(p.v[j + (c & 1)], c);
    const __m512 a = load_values<kType>(p.k[j], c, kAll);
    const __m512 b = load_values<kType>(p.k[j + 1], c, kAll);
    if (c == 0) {
#pragma GCC unroll 12
      for (int h = 0; h < kHeads; ++h) {
        const __m512 x = _mm512_load_ps(q + 16 * h);
        acc[h] = _mm512_mul_ps(x, a);
        acc[kHeads + h] = _mm512_mul_ps(x, b);
      }
      continue;
    }
#pragma GCC unroll 12
    for (int h = 0; h < kHeads; ++h) {
      __m512 x = _mm512_load_ps(q + 16 * h);
      hold(x);
      acc[h] = _mm512_fmadd_ps(x, a, acc[h]);
      acc[kHeads + h] = _mm512_fmadd_ps(x, b, acc[kHeads + h]);
    }
  }
  _mm512_storeu_ps(scores, _mm512_mul_ps(sum_lanes_of_16(acc), scale));
  _mm256_storeu_ps(scores + 16,
                   _mm256_mul_ps(sum_lanes_of_8(acc + 16), _mm512_castps512_ps256(scale)));
}

// Scores of all keys, then head after head in p.scores.
template <int kType>
void score_list(const Partition& p, float scale, float* by_key) {
  for (int32_t j = 0; j < p.n; j += 2) {
    score_two<kType>(p, j, _mm512_set1_ps(scale), by_key + j * kHeads);
  }
  for (int32_t j = 0; j < p.n; j += 16) {
    __m512 v[16];
    for (int i = 0; i < 16; ++i) v[i] = _mm512_loadu_ps(by_key + (j + i) * kHeads);
    transpose_16(v);
    for (int h = 0; h < kHeads; ++h) _mm512_store_ps(p.scores + h * kAttendPartition + j, v[h]);
  }
}

// o = sum p v for vectors c and c + 1 of all heads. Each step asks for one line of the next keys.
template <int kType>
inline void accumulate_two(const Partition& p, int64_t c, const Partition& next, float* const* o) {
  constexpr __mmask16 kAll = 0xffff;
  __m512 acc[kHeads][2];
#pragma GCC unroll 12
  for (int h = 0; h < kHeads; ++h) acc[h][0] = acc[h][1] = _mm512_setzero_ps();
  for (int32_t j = 0; j < p.n; ++j) {
    if (j < next.n) prefetch_two<kType, _MM_HINT_T1>(next.k[j], c);
    prefetch_two<kType, _MM_HINT_T0>(p.v[j + kAheadValues], c);
    const __m512 a = load_values<kType>(p.v[j], c, kAll),
                 b = load_values<kType>(p.v[j], c + 1, kAll);
    const float* weights = p.scores + j;
#pragma GCC unroll 12
    for (int h = 0; h < kHeads; ++h) {
      const __m512 w = _mm512_set1_ps(weights[h * kAttendPartition]);
      acc[h][0] = _mm512_fmadd_ps(w, a, acc[h][0]);
      acc[h][1] = _mm512_fmadd_ps(w, b, acc[h][1]);
    }
  }
#pragma GCC unroll 12
  for (int h = 0; h < kHeads; ++h) {
    _mm512_store_ps(o[h] + 16 * c, acc[h][0]);
    _mm512_store_ps(o[h] + 16 * c + 16, acc[h][1]);
  }
}

template <int kType>
void attend_list(const AttendListArgs& args) {
  const AttendArgs& a = args.partition;
  Partition p, next;
  p.k_dim = a.k_dim;
  p.v_dim = a.v_dim;
  p.k_chunks = a.k_dim / 16;
  p.v_chunks = a.v_dim / 16;
  list_rows<kType>(a, p);
  if (args.n_next > 0) {
    AttendArgs following = a;
    following.runs = args.next;
    following.n_runs = args.n_next;
    list_rows<kType>(following, next);
  }
  p.scores = a.scratch;
  float* by_key = p.scores + kHeads * kAttendPartition;
  p.q = by_key + kHeads * kAttendPartition + 256;
  for (int32_t first = 0; first < a.n_heads; first += kHeads) {
    float* o[kHeads];
    for (int h = 0; h < kHeads; ++h) {
      o[h] = a.records + (first + h) * a.record_head_stride + 16;
      const float* q = a.q + (first + h) * a.q_head_stride;
      for (int64_t c = 0; c < p.k_chunks; ++c) {
        _mm512_store_ps(p.q + (c * kHeads + h) * 16, _mm512_loadu_ps(q + 16 * c));
      }
    }
    score_list<kType>(p, a.scale, by_key);
    for (int h = 0; h < kHeads; ++h) {
      softmax_row(p.scores + h * kAttendPartition, p.n, o[h] - 16);
    }
    for (int64_t c = 0; c < p.v_chunks; c += 2) accumulate_two<kType>(p, c, next, o);
  }
}

}  // namespace

void install_attend_list(IndexKernels& kernels) {
  kernels.attend_list[kKvF32] = attend_list<kKvF32>;
  kernels.attend_list[kKvF16] = attend_list<kKvF16>;
  kernels.attend_list[kKvQ8_0] = attend_list<kKvQ8_0>;
}

}  // namespace okibi::cpu::avx512
