// Products with the 32-value types by VNNI: gemv reads the packed panel once per four rows, gemm
// unpacks chunks (x16_gemm32.h) and passes tiles of rows over them. Same arithmetic, same bits.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_gemm32.h"
#include "cpu/kernels/avx512/x16_q8b32_pack.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

// How far gemv asks for its panel ahead of use; covers the latency of memory at full bandwidth.
constexpr int64_t kPrefetchBytes = 4096;

// ---- gemv

struct Rows32 {
  const int8_t* q;
  int64_t q_stride;
  const float* d;
  int64_t d_stride;
  const int32_t* starts;
  const float* dsums;
  int64_t table_stride;
};

// Block `b`, the half h of `unit`, for kRows rows.
template <class T, int kRows>
[[gnu::always_inline]] inline void add_block(const Rows32& a, const uint8_t* unit, int h, int64_t b,
                                             const uint8_t* scales, __m512* acc) {
  __m512i v[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) v[r] = _mm512_set1_epi32(a.starts[r * a.table_stride + b]);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512i w = T::code(unit, h, j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      v[r] = _mm512_dpbusd_epi32(v[r], w, broadcast32(a.q + r * a.q_stride + 32 * b + 4 * j));
    }
  }
  const __m512 scale = T::scale(scales);
  const __m512 back = _mm512_mul_ps(scale, _mm512_set1_ps(-kMagic));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    acc[r] = _mm512_fmadd_ps(scaled<T::kConvert>(v[r], scale, back),
                             broadcast(a.d + r * a.d_stride + b), acc[r]);
    if constexpr (T::kHasMin) {
      acc[r] = _mm512_fmadd_ps(load_f16(scales + 32), broadcast(a.dsums + r * a.table_stride + b),
                               acc[r]);
    }
  }
}

template <class T, int kRows>
void gemv_rows(const ProductArgs& args, int64_t row, const Rows32& a) {
  const int64_t n_in = args.w.n_in, n_blocks = n_in / 32;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* base = args.w.data + panel * args.w.panel_bytes;
    const uint8_t* unit = base + units_offset<T>(n_in);
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    int64_t b = 0;
    for (; b + 2 <= n_blocks; b += 2, unit += T::kUnitBytes) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < T::kUnitBytes; i += 64) prefetch(unit + kPrefetchBytes + i);
      add_block<T, kRows>(a, unit, 0, b, scales_at<T>(base, b), acc);
      add_block<T, kRows>(a, unit, 1, b + 1, scales_at<T>(base, b + 1), acc);
    }
    if (b < n_blocks) add_block<T, kRows>(a, unit, 0, b, scales_at<T>(base, b), acc);
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

template <class T>
void gemv(const ProductArgs& args) {
  const int64_t stride = table_blocks32(args.w.n_in);
  int32_t* starts = reinterpret_cast<int32_t*>(args.scratch);
  float* dsums = reinterpret_cast<float*>(starts + kGemvRows * stride);
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    make_row_tables32<T>(args, row, n, starts, dsums, stride);
    const Rows32 a = {args.a.q + row * args.a.q_stride,
                      args.a.q_stride,
                      args.a.d + row * args.a.d_stride,
                      args.a.d_stride,
                      starts,
                      dsums,
                      stride};
    if (n == 1) gemv_rows<T, 1>(args, row, a);
    if (n == 2) gemv_rows<T, 2>(args, row, a);
    if (n == 3) gemv_rows<T, 3>(args, row, a);
    if (n == 4) gemv_rows<T, 4>(args, row, a);
  }
}

// ---- gemm

// Six rows by two panels: 12 integer and 12 float accumulators, 2 vectors of codes, 1 broadcast of
// the 32 registers; 8 loads feed 12 dot products.
constexpr int kTileRows = 6;

// Rows [row, row + kRows) of the step.
template <int kRows, int kPanels, bool kHasMin, bool kConvert>
void add_tile(const Step32& s, int64_t row) {
  float* sums = s.acc + row * kAccFloats;
  const int8_t* q = s.q + row * s.q_stride;
  __m512 acc[kRows][kPanels];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = s.is_first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kAccFloats + 16 * p);
    }
  }
  for (int b = 0; b < s.n_blocks; ++b) {
    const float* d = s.d + b * s.table_stride + row;
    const int32_t* starts = s.starts + b * s.table_stride + row;
    const float* dsums = s.dsums + b * s.table_stride + row;
    __m512i v[kRows][kPanels];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) v[r][p] = broadcast32(starts + r);
    }
    const uint8_t* codes = s.chunk->codes + 1024 * b;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      __m512i w[kPanels];
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) w[p] = load(codes + 128 * j + 64 * p);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512i a = broadcast32(q + r * s.q_stride + 32 * b + 4 * j);
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) v[r][p] = _mm512_dpbusd_epi32(v[r][p], w[p], a);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = _mm512_load_ps(s.chunk->scale[b][p]);
      const __m512 back = _mm512_mul_ps(scale, _mm512_set1_ps(-kMagic));
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512 product = scaled<kConvert>(v[r][p], scale, back);
        acc[r][p] = _mm512_fmadd_ps(product, broadcast(d + r), acc[r][p]);
        if constexpr (kHasMin) {
          acc[r][p] = _mm512_fmadd_ps(_mm512_load_ps(s.chunk->minimum[b][p]), broadcast(dsums + r),
                                      acc[r][p]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      if (s.is_last) {
        finish(s.out, row + r, p, acc[r][p]);
      } else {
        _mm512_store_ps(sums + r * kAccFloats + 16 * p, acc[r][p]);
      }
    }
  }
}

using TileFn = void (*)(const Step32&, int64_t);
template <int kPanels, bool kHasMin, bool kConvert>
constexpr TileFn kTiles[kTileRows] = {
    add_tile<1, kPanels, kHasMin, kConvert>, add_tile<2, kPanels, kHasMin, kConvert>,
    add_tile<3, kPanels, kHasMin, kConvert>, add_tile<4, kPanels, kHasMin, kConvert>,
    add_tile<5, kPanels, kHasMin, kConvert>, add_tile<6, kPanels, kHasMin, kConvert>};

template <class T>
void gemm(const ProductArgs& args) {
  walk32<T>(args, [](const Step32& s) {
    const TileFn* tiles =
        s.n_panels == 2 ? kTiles<2, T::kHasMin, T::kConvert> : kTiles<1, T::kHasMin, T::kConvert>;
    const int64_t n_tiles = (s.n_rows + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < n_tiles; ++i) {
      prefetch_part(s.ahead, i, n_tiles);
      if (s.is_last) prefetch_outputs(s.out, i * kTileRows, kTileRows);
      tiles[min64(kTileRows, s.n_rows - i * kTileRows) - 1](s, i * kTileRows);
    }
  });
}

int64_t scratch_bytes(int64_t n_in) {
  return max64(gemm32_scratch_bytes(n_in), 2 * kGemvRows * 4 * table_blocks32(n_in));
}

template <class T>
LinearKernels kernels(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B32;
  k.panel_bytes = panel_bytes32<T>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack32<T>;
  k.unpack = unpack32<T>;
  k.gemv = gemv<T>;
  k.gemv_name = gemv_name;
  k.gemm = gemm<T>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = kGemvRows + 1;
  return k;
}

}  // namespace

namespace avx512 {

void install_q8b32(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ8_0] = kernels<Q8_0>("q8_0_x16", "avx512.gemv_q8_0", "avx512.gemm_q8_0");
  t[weight::kQ4_0] = kernels<Q4_0>("q4_0_x16", "avx512.gemv_q4_0", "avx512.gemm_q4_0");
  t[weight::kQ4_1] = kernels<Q4_1>("q4_1_x16", "avx512.gemv_q4_1", "avx512.gemm_q4_1");
  t[weight::kQ5_0] = kernels<Q5_0>("q5_0_x16", "avx512.gemv_q5_0", "avx512.gemm_q5_0");
  t[weight::kQ5_1] = kernels<Q5_1>("q5_1_x16", "avx512.gemv_q5_1", "avx512.gemm_q5_1");
  t[weight::kMXFP4] = kernels<MXFP4>("mxfp4_x16", "avx512.gemv_mxfp4", "avx512.gemm_mxfp4");
  t[weight::kQ2_0] = kernels<Q2_0>("q2_0_x16", "avx512.gemv_q2_0", "avx512.gemm_q2_0");
  t[weight::kQ1_0] = kernels<Q1_0>("q1_0_x16", "avx512.gemv_q1_0", "avx512.gemm_q1_0");
  t[weight::kIQ4_NL] = kernels<IQ4_NL>("iq4_nl_x16", "avx512.gemv_iq4_nl", "avx512.gemm_iq4_nl");
}

}  // namespace avx512
}  // namespace okibi::cpu
