// Attention inside a view by AMX-BF16 (cpu/view_attend.h): tiles of 32 queries, so that a tile of
// keys or values serves two products, and blocks of keys, whose scores and weights stay in the
// first-level cache; keys and values are loaded past it.
#include "cpu/kernels/amx/view_attend.h"

#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/tile_runs.h"
#include "cpu/kernels/amx/view_weights.h"
#include "cpu/kernels/avx512/attend_simd.h"
#include "cpu/view_attend.h"

namespace okibi::cpu::amx {
namespace {

using namespace amx_bf16;
using namespace amx_view;
using amx_tile::kTileBytes;
using amx_tile::multiply;
using amx_tile::Runs;
using avx512::tail_mask;

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
    for (int64_t first = 0; first < round_up_32(k.n_rows); first += 32, to += 2 * kTileBytes) {
      __m512i v[32];
      for (int64_t i = 0; i < 32; ++i) v[view_key_row(i)] = k.round(first + i, dim);
      x16::store_transposed(v, to, 64);
      x16::store_transposed(v + 16, to + kTileBytes, 64);
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

// Tiles of queries of a head against blocks of keys: scores, their weights, and the weights' sums
// of the values. Products with values and those with the keys of the block to come follow each
// other.
class Attention {
 public:
  explicit Attention(const ViewAttendArgs& a)
      : a_(a),
        n_keys_(round_up_32(a.n_rows)),
        dims_(round_up_32(a.head_dim)),
        weigher_(a.scale),
        scores_(reinterpret_cast<float*>(a.scratch)),
        sums_(scores_ + kViewTileQueries * kViewBlockKeys),
        results_(sums_ + kViewTileQueries * 32) {}

  void run() {
    Block b;
    multiply(Runs{}, score(b));
    for (bool is_last = false; !is_last;) {
      weigh(b);
      weigher_.lower(results_, dims_ / 16);
      Block next = b;
      next.key += kViewBlockKeys;
      const bool ends_tile = next.key >= a_.n_rows;
      if (ends_tile) next = {.query = b.query + kViewTileQueries};
      is_last = next.query >= a_.n_queries;
      multiply(weigh_values(b), is_last ? Runs{} : score(next));
      if (ends_tile) finish(b.query);
      b = next;
    }
  }

 private:
  // The first query of a tile, counted from first_query, and the first key of a block.
  struct Block {
    int64_t query = 0, key = 0;
  };
  int64_t keys_of(const Block& b) const { return x16::min64(kViewBlockKeys, a_.n_rows - b.key); }
  int64_t queries_of(int64_t query) const {
    return x16::min64(kViewTileQueries, a_.n_queries - query);
  }

  Runs score(const Block& b) const {
    const int64_t step_bytes = n_keys_ * 64;  // of queries and keys
    return {.n_runs = round_up_32(keys_of(b)) / 32,
            .n_steps = dims_ / 32,
            .rows = a_.queries + (a_.first_query + b.query) * 64,
            .row_step = step_bytes,
            .columns = a_.keys + b.key * 64,
            .column_tile = kTileBytes,
            .column_step = step_bytes,
            .column_run = 2 * kTileBytes,
            .sums = scores_};
  }

  Runs weigh_values(const Block& b) const {
    const int64_t dim_bytes = n_keys_ / 32 * kTileBytes;  // of 16 dims
    return {.n_runs = dims_ / 32,
            .n_steps = round_up_32(keys_of(b)) / 32,
            .rows = reinterpret_cast<const uint8_t*>(scores_),
            .row_step = kGroupFloats * 4,
            .columns = a_.values + b.key / 32 * kTileBytes,
            .column_tile = dim_bytes,
            .column_step = kTileBytes,
            .column_run = 2 * dim_bytes,
            .sums = results_,
            .accumulates = b.key > 0};
  }

  void weigh(const Block& b) {
    const int64_t n = queries_of(b.query), n_keys = keys_of(b);
    for (int64_t r = 0; r < n; ++r) {
      // Stores into rows that no cache holds would keep all others waiting.
      if (b.key == 0) prefetch_out(b.query + r);
      weigher_.weigh(r, {scores_ + 16 * r, n_keys}, b.key == 0, sums_ + 32 * r);
    }
  }

  void prefetch_out(int64_t query) const {
    if (a_.rounded.tiles != nullptr) {
      for (int64_t i = 0; i < dims_ / 32; ++i) {
        __builtin_prefetch(step_of(query, i) + query % kViewTileQueries * 64, /*write=*/1);
      }
      return;
    }
    const float* out = a_.out + query * a_.out_stride;
    for (int64_t i = 0; i < a_.head_dim; i += 16) __builtin_prefetch(out + i, /*write=*/1);
  }

  void finish(int64_t query) {
    alignas(64) float inverse[kViewTileQueries];
    for (int64_t first = 0; first < kViewTileQueries; first += 16) {
      __m512 lanes[16];
      for (int64_t r = 0; r < 16; ++r) {
        const float* row = sums_ + (first + r) * 32;
        lanes[r] = _mm512_add_ps(_mm512_load_ps(row), _mm512_load_ps(row + 16));
      }
      _mm512_store_ps(inverse + first,
                      _mm512_div_ps(_mm512_set1_ps(1.0f), avx512::sum_lanes_of_16(lanes)));
    }
    if (a_.rounded.tiles != nullptr) {
      write_rounded(query, inverse);
    } else {
      write_floats(query, inverse);
    }
  }

  void write_floats(int64_t query, const float* inverse) const {
    float* out = a_.out + query * a_.out_stride;
    for (int64_t r = 0; r < queries_of(query); ++r, out += a_.out_stride) {
      const __m512 by = _mm512_set1_ps(inverse[r]);
      const float* result = results_ + 16 * r;
      for (int64_t i = 0; i < a_.head_dim; i += 16, result += 2 * kTileFloats) {
        _mm512_mask_storeu_ps(out + i, tail_mask(i, a_.head_dim),
                              _mm512_mul_ps(_mm512_load_ps(result), by));
      }
    }
  }

  // A tile of queries is a pair of the tiles' rows; those past the last are zero.
  uint8_t* step_of(int64_t query, int64_t i) const {
    const ViewRounded& to = a_.rounded;
    return to.tiles + bf16_step_offset(1, to.n_pairs, to.n_in, to.first_step + i,
                                       (a_.first_query + query) / kBf16PairRows);
  }
  void write_rounded(int64_t query, const float* inverse) const {
    static_assert(kViewTileQueries == kBf16PairRows);
    const int64_t n = queries_of(query);
    for (int64_t i = 0; i < dims_ / 32; ++i) {
      uint8_t* to = step_of(query, i);
      const float* result = results_ + i * 4 * kTileFloats;
      for (int64_t r = 0; r < n; ++r) {
        const __m512 by = _mm512_set1_ps(inverse[r]);
        x16::store(to + 64 * r,
                   to_bf16(_mm512_mul_ps(_mm512_load_ps(result + 16 * r), by),
                           _mm512_mul_ps(_mm512_load_ps(result + 2 * kTileFloats + 16 * r), by)));
      }
      for (int64_t r = n; r < kBf16PairRows; ++r) x16::store(to + 64 * r, _mm512_setzero_si512());
    }
  }

  const ViewAttendArgs& a_;
  int64_t n_keys_, dims_;
  Weigher weigher_;
  float* scores_;   // and weights: groups of 32 keys
  float* sums_;     // (32, 32)
  float* results_;  // (dims / 16, 32, 16)
};

void attend(const ViewAttendArgs& a) {
  amx_tile::Config config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  amx_tile::load_config(config);
  Attention(a).run();
}

constexpr ViewAttendKernels kKernels = {
    .pack = pack, .attend = attend, .name = "amx.attend_view_bf16"};

}  // namespace

void install_view_attend(KernelTable& table) {
  table.view_attend = &kKernels;
}

}  // namespace okibi::cpu::amx
