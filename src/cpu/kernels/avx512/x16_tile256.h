// gemm of the 256-value types by VNNI: one super-block of two panels is unpacked to bytes and int32
// scales (x16_gemm256.h has the walk), tiles of six rows pass over it. The dot products of a group
// are multiplied by its scale and added as int32.
#pragma once

#include "cpu/kernels/avx512/x16_gemm256.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// acc + I * (d * da), and with a minimum the second term, as kernel_table.h states.
[[gnu::always_inline]] inline __m512 add_scaled(__m512 acc, __m512 d, const float* da,
                                                __m512i total) {
  return _mm512_fmadd_ps(_mm512_mul_ps(d, broadcast(da)), _mm512_cvtepi32_ps(total), acc);
}
[[gnu::always_inline]] inline __m512 subtract_scaled(__m512 acc, __m512 m, const float* da,
                                                     __m512i minima) {
  return _mm512_fnmadd_ps(_mm512_mul_ps(m, broadcast(da)), _mm512_cvtepi32_ps(minima), acc);
}

// A super-block of two panels. codes: vector x of panel p at (2x + p) * 64.
struct Chunk256 {
  alignas(64) uint8_t codes[2 * 64 * 64];
  alignas(64) int32_t scales[16][2][16];
  int32_t mins[8][2][16];  // pairs
  float d[2][16], m[2][16];
};

template <class T>
void unpack_super_block(const uint8_t* head, const uint8_t* unit, int p, Chunk256* chunk) {
  __m512i scales[T::kGroups / 2], mins[T::kMinPairs];
  T::unpack(unit, chunk->codes + 64 * p, 128, scales, mins);
#pragma GCC unroll 16
  for (int g = 0; g < T::kGroups; ++g) store(chunk->scales[g][p], scale_of(scales[g / 2], g & 1));
  _mm512_store_ps(chunk->d[p], T::d(head, unit));
  if constexpr (T::kHasMin) {
#pragma GCC unroll 8
    for (int i = 0; i < T::kMinPairs; ++i) store(chunk->mins[i][p], mins[i]);
    _mm512_store_ps(chunk->m[p], T::m(unit));
  }
}

// Six rows by two panels: 12 dot products and 12 totals, 2 vectors of codes, 1 broadcast, 2 scales
// of the 32 registers. The sums stay in scratch: they are touched once per super-block.
constexpr int kTileRows256 = 6;

// The groups of a super-block into `total`.
template <class T, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_groups(const Step256<Chunk256>& s, int64_t row,
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
void add_tile256(const Step256<Chunk256>& s, int64_t row) {
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
        const int16_t* by32 = s.sums + (row + r) * 2 * T::kMinPairs;
        __m512i minima = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < T::kMinPairs; ++i) {
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

using TileFn256 = void (*)(const Step256<Chunk256>&, int64_t);
template <class T, int kPanels>
constexpr TileFn256 kTiles256[kTileRows256] = {
    add_tile256<T, 1, kPanels>, add_tile256<T, 2, kPanels>, add_tile256<T, 3, kPanels>,
    add_tile256<T, 4, kPanels>, add_tile256<T, 5, kPanels>, add_tile256<T, 6, kPanels>};

template <class T>
void gemm256(const ProductArgs& args) {
  walk256<T, Chunk256>(args, unpack_super_block<T>, [](const Step256<Chunk256>& s) {
    const TileFn256* tiles = s.n_panels == 2 ? kTiles256<T, 2> : kTiles256<T, 1>;
    const int64_t n_tiles = (s.n_rows + kTileRows256 - 1) / kTileRows256;
    for (int64_t i = 0; i < n_tiles; ++i) {
      prefetch_part(s.ahead, i, n_tiles);
      if (s.is_last) prefetch_outputs(s.out, i * kTileRows256, kTileRows256);
      tiles[min64(kTileRows256, s.n_rows - i * kTileRows256) - 1](s, i * kTileRows256);
    }
  });
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
