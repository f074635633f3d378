// Products with the 256-value types by VNNI: gemv reads the packed panel once per four rows, gemm
// unpacks one super-block of two panels (x16_gemm256.h) and passes tiles of rows over it. The dot
// products of a group are multiplied by its scale and added as int32; same bits either way.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_gemm256.h"
#include "cpu/kernels/avx512/x16_q8b256_pack.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

// How far gemv asks for its panel ahead of use; covers the latency of memory at full bandwidth.
constexpr int64_t kPrefetchBytes = 4096;

// acc + I * (d * da), and with a minimum the second term, as kernel_table.h states.
[[gnu::always_inline]] inline __m512 add_scaled(__m512 acc, __m512 d, const float* da,
                                                __m512i total) {
  return _mm512_fmadd_ps(_mm512_mul_ps(d, broadcast(da)), _mm512_cvtepi32_ps(total), acc);
}
[[gnu::always_inline]] inline __m512 subtract_scaled(__m512 acc, __m512 m, const float* da,
                                                     __m512i minima) {
  return _mm512_fnmadd_ps(_mm512_mul_ps(m, broadcast(da)), _mm512_cvtepi32_ps(minima), acc);
}

// ---- gemv

struct Rows256 {
  const int8_t* q;
  int64_t q_stride;
  const float* d;  // this and the following: kGemvRows rows side by side per super-block
  const int32_t* starts;
  const int16_t* sums;
};

template <class T, int kRows>
[[gnu::always_inline]] inline void add_unit(const Rows256& a, const uint8_t* head,
                                            const uint8_t* unit, int64_t b, __m512* acc) {
  constexpr int kVectors = 64 / T::kGroups;  // per group
  __m512i scales[T::kGroups / 2], mins[4], total[kRows];
  T::scales(unit, scales, mins);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int g = 0; g < T::kGroups; ++g) {
    __m512i v[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      v[r] = T::kOffset == 0 ? _mm512_setzero_si512()
                             : broadcast32(a.starts + (kGemvRows * b + r) * T::kGroups + g);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const int x = g * kVectors + j;
      const __m512i w = T::code(unit, x);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        v[r] = _mm512_dpbusd_epi32(v[r], w, broadcast32(a.q + r * a.q_stride + 256 * b + 4 * x));
      }
    }
    const __m512i scale = scale_of(scales[g / 2], g & 1);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(v[r], scale));
    }
  }
  const __m512 d = T::d(head, unit);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    acc[r] = add_scaled(acc[r], d, a.d + kGemvRows * b + r, total[r]);
    if constexpr (T::kHasMin) {
      __m512i minima = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        minima = _mm512_dpwssd_epi32(minima, mins[p],
                                     broadcast32(a.sums + (kGemvRows * b + r) * 8 + 2 * p));
      }
      acc[r] = subtract_scaled(acc[r], T::m(unit), a.d + kGemvRows * b + r, minima);
    }
  }
}

template <class T, int kRows>
void gemv_rows(const ProductArgs& args, int64_t row, const Rows256& a) {
  const int64_t n_blocks = args.w.n_in / 256;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* head = args.w.data + panel * args.w.panel_bytes;
    const uint8_t* unit = head + units_offset256<T>(args.w.n_in);
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < n_blocks; ++b, head += T::kHeadBytes, unit += T::kUnitBytes) {
      for (int64_t i = 0; i < T::kUnitBytes; i += 64) prefetch(unit + kPrefetchBytes + i);
      add_unit<T, kRows>(a, head, unit, b, acc);
    }
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

template <class T>
void gemv(const ProductArgs& args) {
  const int64_t n_blocks = args.w.n_in / 256;
  int32_t* starts = reinterpret_cast<int32_t*>(args.scratch);
  int16_t* sums = reinterpret_cast<int16_t*>(starts + kGemvRows * n_blocks * T::kGroups);
  float* d = reinterpret_cast<float*>(sums + kGemvRows * n_blocks * 8);
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    make_tables256<T::kGroups, T::kOffset, T::kHasMin>(args, row, n, kGemvRows, d, starts, sums);
    const Rows256 a = {args.a.q + row * args.a.q_stride, args.a.q_stride, d, starts, sums};
    if (n == 1) gemv_rows<T, 1>(args, row, a);
    if (n == 2) gemv_rows<T, 2>(args, row, a);
    if (n == 3) gemv_rows<T, 3>(args, row, a);
    if (n == 4) gemv_rows<T, 4>(args, row, a);
  }
}

// ---- gemm

// A super-block of two panels. codes: vector x of panel p at (2x + p) * 64.
struct Chunk {
  alignas(64) uint8_t codes[2 * 64 * 64];
  alignas(64) int32_t scales[16][2][16];
  int32_t mins[4][2][16];  // pairs
  float d[2][16], m[2][16];
};
using Step = Step256<Chunk>;

template <class T>
void unpack(const uint8_t* head, const uint8_t* unit, int p, Chunk* chunk) {
#pragma GCC unroll 64
  for (int x = 0; x < 64; ++x) store(chunk->codes + 128 * x + 64 * p, T::code(unit, x));
  __m512i scales[T::kGroups / 2], mins[4];
  T::scales(unit, scales, mins);
#pragma GCC unroll 16
  for (int g = 0; g < T::kGroups; ++g) store(chunk->scales[g][p], scale_of(scales[g / 2], g & 1));
  _mm512_store_ps(chunk->d[p], T::d(head, unit));
  if constexpr (T::kHasMin) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(chunk->mins[i][p], mins[i]);
    _mm512_store_ps(chunk->m[p], T::m(unit));
  }
}

// Six rows by two panels: 12 dot products and 12 totals, 2 vectors of codes, 1 broadcast, 2 scales
// of the 32 registers. The sums stay in scratch: they are touched once per super-block.
constexpr int kTileRows = 6;

// The groups of a super-block into `total`.
template <class T, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_groups(const Step& s, int64_t row,
                                              __m512i (&total)[kRows][kPanels]) {
  constexpr int kVectors = 64 / T::kGroups;
  const int8_t* q = s.q + row * s.q_stride;
  const int32_t* starts = s.starts + row * T::kGroups;
  const uint8_t* codes = s.chunk->codes;
  for (int g = 0; g < T::kGroups; ++g, codes += 128 * kVectors, q += 4 * kVectors) {
    __m512i v[kRows][kPanels];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        v[r][p] =
            T::kOffset == 0 ? _mm512_setzero_si512() : broadcast32(starts + r * T::kGroups + g);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      __m512i w[kPanels];
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) w[p] = load(codes + 128 * j + 64 * p);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512i a = broadcast32(q + r * s.q_stride + 4 * j);
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) v[r][p] = _mm512_dpbusd_epi32(v[r][p], w[p], a);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const __m512i scale = load(s.chunk->scales[g][p]);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        total[r][p] = _mm512_add_epi32(total[r][p], _mm512_mullo_epi32(v[r][p], scale));
      }
    }
  }
}

// Rows [row, row + kRows) of the step.
template <class T, int kRows, int kPanels>
void add_tile(const Step& s, int64_t row) {
  __m512i total[kRows][kPanels];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) total[r][p] = _mm512_setzero_si512();
  }
  add_groups<T, kRows, kPanels>(s, row, total);
  float* sums = s.acc + row * kAccFloats;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const float* da = s.d + row + r;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      float* at = sums + r * kAccFloats + 16 * p;
      __m512 acc = s.is_first ? _mm512_setzero_ps() : _mm512_load_ps(at);
      acc = add_scaled(acc, _mm512_load_ps(s.chunk->d[p]), da, total[r][p]);
      if constexpr (T::kHasMin) {
        const int16_t* by32 = s.sums + (row + r) * 8;
        __m512i minima = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          minima =
              _mm512_dpwssd_epi32(minima, load(s.chunk->mins[i][p]), broadcast32(by32 + 2 * i));
        }
        acc = subtract_scaled(acc, _mm512_load_ps(s.chunk->m[p]), da, minima);
      }
      if (s.is_last) {
        finish(s.out, row + r, p, acc);
      } else {
        _mm512_store_ps(at, acc);
      }
    }
  }
}

using TileFn = void (*)(const Step&, int64_t);
template <class T, int kPanels>
constexpr TileFn kTiles[kTileRows] = {add_tile<T, 1, kPanels>, add_tile<T, 2, kPanels>,
                                      add_tile<T, 3, kPanels>, add_tile<T, 4, kPanels>,
                                      add_tile<T, 5, kPanels>, add_tile<T, 6, kPanels>};

template <class T>
void gemm(const ProductArgs& args) {
  walk256<T, Chunk, true>(args, unpack<T>, [](const Step& s) {
    const TileFn* tiles = s.n_panels == 2 ? kTiles<T, 2> : kTiles<T, 1>;
    const int64_t n_tiles = (s.n_rows + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < n_tiles; ++i) {
      prefetch_part(s.ahead, i, n_tiles);
      if (s.is_last) prefetch_outputs(s.out, i * kTileRows, kTileRows);
      tiles[min64(kTileRows, s.n_rows - i * kTileRows) - 1](s, i * kTileRows);
    }
  });
}

int64_t scratch_bytes(int64_t n_in) {
  return gemm256_scratch_bytes<Chunk>(n_in);
}

template <class T>
LinearKernels kernels(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B256;
  k.panel_bytes = panel_bytes256<T>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack256<T>;
  k.unpack = unpack256<T>;
  k.gemv = gemv<T>;
  k.gemv_name = gemv_name;
  k.gemm = gemm<T>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = kGemvRows + 1;
  return k;
}

}  // namespace

namespace avx512 {

void install_q8b256(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ4_K] = kernels<Q4_K>("q4k_x16", "avx512.gemv_q4k", "avx512.gemm_q4k");
  t[weight::kQ5_K] = kernels<Q5_K>("q5k_x16", "avx512.gemv_q5k", "avx512.gemm_q5k");
  t[weight::kQ6_K] = kernels<Q6_K>("q6k_x16", "avx512.gemv_q6k", "avx512.gemm_q6k");
  t[weight::kIQ4_XS] = kernels<IQ4_XS>("iq4_xs_x16", "avx512.gemv_iq4_xs", "avx512.gemm_iq4_xs");
}

}  // namespace avx512
}  // namespace okibi::cpu
