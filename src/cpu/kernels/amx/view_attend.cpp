// Attention inside a view by AMX-BF16: 16 queries against all keys of the view, then a softmax per
// row in AVX-512, then the weights against all values. The scores of 16 queries stay in the
// first-level cache, which keys and values are loaded past.
#include "cpu/kernels/amx/view_attend.h"

#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/coarse_math.h"
#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/attend_simd.h"
#include "cpu/view_attend.h"

namespace okibi::cpu::amx {
namespace {

using namespace amx_bf16;
using avx512::sum_lanes;
using avx512::tail_mask;

constexpr int64_t kTileBytes = 1024;

inline __m512 load_biased(const float* x, const float* bias, __mmask16 mask) {
  return _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_maskz_loadu_ps(mask, bias));
}

// 32 values of x + bias from `first` on, those from n on zero, as bfloat16 in order.
inline __m512i load_bf16(const float* x, const float* bias, int64_t first, int64_t n) {
  return to_bf16(load_biased(x + first, bias + first, mask_at(first, n)),
                 load_biased(x + first + 16, bias + first + 16, mask_at(first + 16, n)));
}

// Rows of one matrix of a head.
struct Side {
  const float* rows;
  int64_t stride;
  const float* bias;
  int64_t n_rows, head_dim;

  // 32 dims of row r; zero past the last.
  __m512i round(int64_t r, int64_t dim) const {
    if (r >= n_rows) return _mm512_setzero_si512();
    return load_bf16(rows + r * stride, bias, dim, head_dim);
  }
  __m512 values(int64_t r, int64_t dim) const {
    const __mmask16 mask = r < n_rows ? mask_at(dim, head_dim) : __mmask16{0};
    return load_biased(rows + r * stride + dim, bias + dim, mask);
  }
};

void pack_queries(const Side& q, uint8_t* to) {
  for (int64_t dim = 0; dim < round_up_32(q.head_dim); dim += 32) {
    for (int64_t r = 0; r < round_up_32(q.n_rows); ++r, to += 64) x16::store(to, q.round(r, dim));
  }
}

void pack_keys(const Side& k, uint8_t* to) {
  for (int64_t dim = 0; dim < round_up_32(k.head_dim); dim += 32) {
    for (int64_t first = 0; first < round_up_32(k.n_rows); first += 16, to += kTileBytes) {
      __m512i v[16];
      for (int64_t i = 0; i < 16; ++i) v[i] = k.round(first + i, dim);
      x16::store_transposed(v, to, 64);
    }
  }
}

void pack_values(const Side& v, uint8_t* to) {
  for (int64_t dim = 0; dim < round_up_32(v.head_dim); dim += 16) {
    for (int64_t r = 0; r < round_up_32(v.n_rows); r += 2, to += 64) {
      x16::store(to, pair_up(v.values(r, dim), v.values(r + 1, dim)));
    }
  }
}

void pack(const ViewPackArgs& a) {
  pack_queries({a.q, a.q_stride, a.q_bias, a.n_rows, a.head_dim}, a.queries);
  pack_keys({a.k, a.k_stride, a.k_bias, a.n_rows, a.head_dim}, a.keys);
  pack_values({a.v, a.v_stride, a.v_bias, a.n_rows, a.head_dim}, a.values);
}

// 16 rows by blocks of 16 columns, over steps of 32 of the inner dimension.
struct Sides {
  const uint8_t* rows = nullptr;
  int64_t row_stride = 0, row_step = 0;  // bytes
  const uint8_t* columns = nullptr;
  int64_t column_block = 0, column_step = 0;  // bytes
  int64_t n_steps = 0;
};

// Blocks of columns at once: 4 or 2 (tile numbers are constants). Sums in tiles 0-3, rows in 4.
template <int kBlocks>
inline void multiply(const Sides& s, float* c, int64_t c_stride) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kBlocks == 4) {
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint8_t* rows = s.rows;
  const uint8_t* columns = s.columns;
  for (int64_t i = 0; i < s.n_steps; ++i, rows += s.row_step, columns += s.column_step) {
    _tile_loadd(4, rows, s.row_stride);
    _tile_stream_loadd(5, columns, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_stream_loadd(6, columns + s.column_block, 64);
    _tile_dpbf16ps(1, 4, 6);
    if constexpr (kBlocks == 4) {
      _tile_stream_loadd(7, columns + 2 * s.column_block, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_stream_loadd(5, columns + 3 * s.column_block, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  const int64_t stride = c_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  if constexpr (kBlocks == 4) {
    _tile_stored(2, c + 32, stride);
    _tile_stored(3, c + 48, stride);
  }
}

// All columns, which are a multiple of 32.
inline void multiply_all(Sides s, int64_t n_columns, float* c, int64_t c_stride) {
  x16::settle_memory();
  int64_t i = 0;
  for (; i + 64 <= n_columns; i += 64, s.columns += 4 * s.column_block) {
    multiply<4>(s, c + i, c_stride);
  }
  if (i < n_columns) multiply<2>(s, c + i, c_stride);
  x16::settle_memory();
}

inline float largest_of(const float* scores, int64_t n) {
  __m512 largest[2] = {_mm512_load_ps(scores), _mm512_load_ps(scores + 16)};
  for (int64_t j = 32; j < n; j += 32) {
    largest[0] = _mm512_max_ps(largest[0], _mm512_load_ps(scores + j));
    largest[1] = _mm512_max_ps(largest[1], _mm512_load_ps(scores + j + 16));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1]));
}

// Scores to weights in place; the sum of the weights before they are rounded. Rows are padded to
// whole vectors.
float softmax_row(float* scores, int64_t n, float scale) {
  const int64_t n_padded = round_up_32(n);
  const __m512 lowest = _mm512_set1_ps(-1e30f);  // finite, for coarse_exp2
  for (int64_t j = n_padded - 32; j < n_padded; j += 16) {
    _mm512_store_ps(scores + j,
                    _mm512_mask_mov_ps(lowest, mask_at(j, n), _mm512_load_ps(scores + j)));
  }
  const float factor = scale * 0x1.715476p+0f;
  const __m512 factors = _mm512_set1_ps(factor);
  const __m512 shift = _mm512_set1_ps(largest_of(scores, n_padded) * factor);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  auto* weights = reinterpret_cast<uint8_t*>(scores);
  for (int64_t j = 0; j < n_padded; j += 32) {
    const __m512 low = coarse_exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + j), factors, shift));
    const __m512 high =
        coarse_exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + j + 16), factors, shift));
    sums[0] = _mm512_add_ps(sums[0], low);
    sums[1] = _mm512_add_ps(sums[1], high);
    x16::store(weights + 2 * j, to_bf16(low, high));
  }
  return sum_lanes(_mm512_add_ps(sums[0], sums[1]));
}

void attend(const ViewAttendArgs& a) {
  const int64_t n_keys = round_up_32(a.n_rows), dims = round_up_32(a.head_dim);
  auto* results = reinterpret_cast<float*>(a.scratch);  // (16, dims)
  float* scores = results + kViewTileQueries * dims;    // (16, n_keys)
  const int64_t score_stride = n_keys + 16;
  const int64_t step_bytes = n_keys * 64;  // of queries and keys
  amx_tile::Config config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  amx_tile::load_config(config);
  multiply_all({.rows = a.queries + a.first_query * 64,
                .row_stride = 64,
                .row_step = step_bytes,
                .columns = a.keys,
                .column_block = kTileBytes,
                .column_step = step_bytes,
                .n_steps = dims / 32},
               n_keys, scores, score_stride);
  // A row of scores becomes its weights in place: 16 bits each, from the beginning of the row.
  const int64_t n_queries = x16::min64(kViewTileQueries, a.n_rows - a.first_query);
  float sums[kViewTileQueries];
  for (int64_t r = 0; r < n_queries; ++r) {
    sums[r] = softmax_row(scores + r * score_stride, a.n_rows, a.scale);
  }
  multiply_all({.rows = reinterpret_cast<const uint8_t*>(scores),
                .row_stride = score_stride * 4,
                .row_step = 64,
                .columns = a.values,
                .column_block = n_keys / 32 * kTileBytes,
                .column_step = kTileBytes,
                .n_steps = n_keys / 32},
               dims, results, dims);
  for (int64_t r = 0; r < n_queries; ++r) {
    const __m512 l = _mm512_set1_ps(sums[r]);
    for (int64_t i = 0; i < a.head_dim; i += 16) {
      _mm512_mask_storeu_ps(a.out + r * a.out_stride + i, tail_mask(i, a.head_dim),
                            _mm512_div_ps(_mm512_load_ps(results + r * dims + i), l));
    }
  }
}

constexpr ViewAttendKernels kKernels = {
    .pack = pack, .attend = attend, .name = "amx.attend_view_bf16"};

}  // namespace

void install_view_attend(KernelTable& table) {
  table.view_attend = &kKernels;
}

}  // namespace okibi::cpu::amx
