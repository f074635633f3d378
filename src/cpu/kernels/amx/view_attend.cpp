// Attention inside a view by AMX-BF16: 32 queries against all keys of the view, then a softmax per
// row in AVX-512, then the weights against all values. Keys and values are packed once per head, in
// tiles of 1 KiB:
//   keys:   [block of 16 keys][32 dims]   tile row p = dims 2p, 2p + 1 of each of the 16 keys
//   values: [32 keys][block of 16 dims]   tile row p = keys 2p, 2p + 1 of each of the 16 dims
// Padding (keys to 32, dims to 32) is zero; padded keys get no weight.
#include "cpu/kernels/amx/view_attend.h"

#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/attend_simd.h"
#include "cpu/view_attend.h"

namespace okibi::cpu::amx {
namespace {

using namespace amx_bf16;
using avx512::sum_lanes;
using avx512::tail_mask;
using avx512::transpose_16;

constexpr int64_t kTileBytes = 1024;

inline __m512 load_biased(const float* x, const float* bias, __mmask16 mask) {
  return _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_maskz_loadu_ps(mask, bias));
}

// 32 values of x + bias from `first` on, those from n on zero, as bfloat16 in order.
inline __m512i load_bf16(const float* x, const float* bias, int64_t first, int64_t n) {
  return to_bf16(load_biased(x + first, bias + first, mask_at(first, n)),
                 load_biased(x + first + 16, bias + first + 16, mask_at(first + 16, n)));
}

void pack_keys(const ViewPackArgs& a) {
  const int64_t n_steps = round_up_32(a.head_dim) / 32;
  uint8_t* keys = a.keys;
  for (int64_t first = 0; first < round_up_32(a.n_keys); first += 16) {
    for (int64_t s = 0; s < n_steps; ++s, keys += kTileBytes) {
      __m512 v[16];
      for (int64_t i = 0; i < 16; ++i) {
        const bool exists = first + i < a.n_keys;
        v[i] = exists ? _mm512_castsi512_ps(
                            load_bf16(a.k + (first + i) * a.k_stride, a.k_bias, 32 * s, a.head_dim))
                      : _mm512_setzero_ps();
      }
      transpose_16(v);
      for (int64_t i = 0; i < 16; ++i) _mm512_store_ps(keys + 64 * i, v[i]);
    }
  }
}

void pack_values(const ViewPackArgs& a) {
  uint8_t* values = a.values;
  for (int64_t first = 0; first < round_up_32(a.n_keys); first += 32) {
    for (int64_t d = 0; d < round_up_32(a.head_dim); d += 16, values += kTileBytes) {
      const __mmask16 mask = mask_at(d, a.head_dim);
      for (int64_t p = 0; p < 16; ++p) {
        const int64_t j = first + 2 * p;
        const __mmask16 even_mask = j < a.n_keys ? mask : __mmask16{0};
        const __mmask16 odd_mask = j + 1 < a.n_keys ? mask : __mmask16{0};
        const __m512 even = load_biased(a.v + j * a.v_stride + d, a.v_bias + d, even_mask);
        const __m512 odd = load_biased(a.v + (j + 1) * a.v_stride + d, a.v_bias + d, odd_mask);
        _mm512_store_si512(values + 64 * p, pair_up(even, odd));
      }
    }
  }
}

void pack(const ViewPackArgs& args) {
  pack_keys(args);
  pack_values(args);
}

// The parts of a tile's scratch.
struct Scratch {
  int64_t dims = 0;            // padded
  int64_t score_stride = 0;    // floats
  int64_t weight_stride = 0;   // bytes
  uint8_t* queries = nullptr;  // bfloat16 (32, dims)
  float* scores = nullptr;     // (32, n_keys padded)
  uint8_t* weights = nullptr;  // bfloat16 (32, n_keys padded)
  float* results = nullptr;    // (32, dims)
};

Scratch divide(const ViewAttendArgs& a) {
  Scratch s;
  const int64_t n_keys = round_up_32(a.n_keys);
  s.dims = round_up_32(a.head_dim);
  s.score_stride = n_keys + 16;
  s.weight_stride = 2 * n_keys + 64;
  s.queries = a.scratch;
  s.scores = reinterpret_cast<float*>(s.queries + kViewTileQueries * s.dims * 2);
  s.weights = reinterpret_cast<uint8_t*>(s.scores + kViewTileQueries * s.score_stride);
  s.results = reinterpret_cast<float*>(s.weights + kViewTileQueries * s.weight_stride);
  return s;
}

// C (tiles 0-3) = 32 rows by 32 columns: rows in tiles 4 and 5, columns in 6 and 7.
struct Sides {
  const uint8_t* rows = nullptr;  // 32 of them
  int64_t row_stride = 0;         // bytes
  int64_t row_step = 0;           // bytes from one 32 of the inner dimension to the next
  const uint8_t* columns = nullptr;
  int64_t column_stride = 0;  // from one block of 16 columns to the next
  int64_t column_step = 0;    // from one 32 of the inner dimension to the next
  int64_t n_steps = 0;
};

inline void multiply(const Sides& s, float* c, int64_t c_stride) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < s.n_steps; ++i) {
    const uint8_t* rows = s.rows + i * s.row_step;
    const uint8_t* columns = s.columns + i * s.column_step;
    _tile_loadd(4, rows, s.row_stride);
    _tile_loadd(6, columns, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, columns + s.column_stride, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows + 16 * s.row_stride, s.row_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  const int64_t stride = c_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, c + 16 * c_stride, stride);
  _tile_stored(3, c + 16 * c_stride + 16, stride);
}

// 2^x for x <= 0 to a relative 8e-5, well below half a unit of bfloat16 (2e-3): with k = x rounded,
// 2^k P(x - k), P fitted so that its largest relative error on [-1/2, 1/2] is least. 0 from -200
// on.
inline __m512 coarse_exp2(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f));
  const __m512 k = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, k);
  __m512 p = _mm512_set1_ps(0x1.c3f76p-5f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.f0de1cp-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62f31ap-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fff692p-1f));
  return _mm512_scalef_ps(p, k);
}

// Scores to weights; the sum of the rounded weights. Rows are padded to whole vectors.
float softmax_row(float* scores, int64_t n, float scale, uint8_t* weights) {
  const int64_t n_padded = round_up_32(n);
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  for (int64_t j = n_padded - 32; j < n_padded; j += 16) {
    const __mmask16 inside = mask_at(j, n);
    _mm512_store_ps(scores + j, _mm512_mask_mov_ps(lowest, inside, _mm512_load_ps(scores + j)));
  }
  __m512 largest[2] = {lowest, lowest};
  for (int64_t j = 0; j < n_padded; j += 32) {
    largest[0] = _mm512_max_ps(largest[0], _mm512_load_ps(scores + j));
    largest[1] = _mm512_max_ps(largest[1], _mm512_load_ps(scores + j + 16));
  }
  const __m512 factor = _mm512_set1_ps(scale * 0x1.715476p+0f);
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1]));
  const __m512 shift = _mm512_mul_ps(_mm512_set1_ps(most), factor);
  // The upper halves of the lanes of two vectors.
  alignas(64) uint16_t odd[32];
  for (int i = 0; i < 32; ++i) odd[i] = static_cast<uint16_t>(2 * i + 1);
  const __m512i upper = _mm512_load_si512(odd);
  __m512 sums = _mm512_setzero_ps();
  for (int64_t j = 0; j < n_padded; j += 32) {
    __m512i bits[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(scores + j + 16 * i), factor, shift);
      bits[i] = round_to_upper(coarse_exp2(x));
      sums = _mm512_add_ps(
          sums, _mm512_castsi512_ps(_mm512_and_si512(bits[i], _mm512_set1_epi32(-65536))));
    }
    _mm512_store_si512(weights + 2 * j, _mm512_permutex2var_epi16(bits[0], upper, bits[1]));
  }
  return sum_lanes(sums);
}

void attend(const ViewAttendArgs& a) {
  const Scratch s = divide(a);
  const int64_t n_keys = round_up_32(a.n_keys), n_steps = s.dims / 32;
  for (int64_t r = 0; r < kViewTileQueries; ++r) {
    for (int64_t i = 0; i < s.dims; i += 32) {
      const __m512i v = r < a.n_queries ? load_bf16(a.q + r * a.q_stride, a.q_bias, i, a.head_dim)
                                        : _mm512_setzero_si512();
      _mm512_store_si512(s.queries + (r * s.dims + i) * 2, v);
    }
  }
  amx_tile::Config config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  amx_tile::load_config(config);
  for (int64_t j = 0; j < n_keys; j += 32) {
    multiply({.rows = s.queries,
              .row_stride = 2 * s.dims,
              .row_step = 64,
              .columns = a.keys + j / 16 * n_steps * kTileBytes,
              .column_stride = n_steps * kTileBytes,
              .column_step = kTileBytes,
              .n_steps = n_steps},
             s.scores + j, s.score_stride);
  }
  x16::settle_memory();
  float sums[kViewTileQueries];
  for (int64_t r = 0; r < kViewTileQueries; ++r) {
    sums[r] = softmax_row(s.scores + r * s.score_stride, a.n_keys, a.scale,
                          s.weights + r * s.weight_stride);
  }
  x16::settle_memory();
  const int64_t n_blocks = s.dims / 16;
  for (int64_t d = 0; d < s.dims; d += 32) {
    multiply({.rows = s.weights,
              .row_stride = s.weight_stride,
              .row_step = 64,
              .columns = a.values + d / 16 * kTileBytes,
              .column_stride = kTileBytes,
              .column_step = n_blocks * kTileBytes,
              .n_steps = n_keys / 32},
             s.results + d, s.dims);
  }
  x16::settle_memory();
  for (int64_t r = 0; r < a.n_queries; ++r) {
    const __m512 l = _mm512_set1_ps(sums[r]);
    for (int64_t i = 0; i < a.head_dim; i += 16) {
      _mm512_mask_storeu_ps(a.out + r * a.out_stride + i, tail_mask(i, a.head_dim),
                            _mm512_div_ps(_mm512_load_ps(s.results + r * s.dims + i), l));
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
