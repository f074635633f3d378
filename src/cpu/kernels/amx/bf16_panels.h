// Weights of the bfloat16 products: how a panel of 32 outputs lies in memory, and how a chunk of it
// becomes tiles. A step is 32 k of the panel; its two tiles stand for 16 outputs each. Row p of a
// tile holds values 2p and 2p + 1 of each of its outputs, side by side.
//
// A layout has kType, kParts (bfloat16 numbers per weight), kStepBytes, kRows (the activations'
// format), kIsTiles (memory is in tile order already) and
//   void pack(const uint8_t* row, int64_t n_in, int64_t r, uint8_t* panel)   output r of the panel
//   void expand(const uint8_t* step, int t, uint8_t* tile)                   tile t of a step, the
//                                                          second part two tiles after the first
#pragma once

#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/avx512/x16.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
namespace amx_bf16 {

// Both parts of 16 outputs' values 2p and 2p + 1.
inline void store_parts(__m512 even, __m512 odd, uint8_t* to) {
  x16::store(to, pair_up(even, odd));
  x16::store(to + 2 * kBf16TileBytes,
             pair_up(_mm512_sub_ps(even, rounded(even)), _mm512_sub_ps(odd, rounded(odd))));
}

// Blocks of 32: the codes of both tiles, evens before odds in each row, then 32 scales. The file's
// bits. A weight is fl(d q) rounded.
struct PanelQ8_0 {
  static constexpr int kType = weight::kQ8_0;
  static constexpr int kParts = 1;
  static constexpr int64_t kStepBytes = 32 * 34;
  static constexpr ActivationFormat kRows = ActivationFormat::kBf16;
  static constexpr bool kIsTiles = false;

  static void pack(const uint8_t* row, int64_t n_in, int64_t r, uint8_t* panel) {
    for (int64_t s = 0; s < n_in / 32; ++s, row += 34, panel += kStepBytes) {
      std::memcpy(panel + 1024 + 2 * r, row, 2);
      uint8_t* codes = panel + r / 16 * 512 + r % 16;
      for (int64_t k = 0; k < 32; ++k) codes[k / 2 * 32 + k % 2 * 16] = row[2 + k];
    }
  }
  static void expand(const uint8_t* step, int t, uint8_t* tile) {
    const __m512 d = x16::load_f16(step + 1024 + 32 * t);
#pragma GCC unroll 16
    for (int p = 0; p < 16; ++p) {
      const auto* from = reinterpret_cast<const __m128i*>(step + 512 * t + 32 * p);
      const __m512i even = _mm512_cvtepi8_epi32(_mm_load_si128(from));
      const __m512i odd = _mm512_cvtepi8_epi32(_mm_load_si128(from + 1));
      x16::store(tile + 64 * p, pair_up(_mm512_mul_ps(_mm512_cvtepi32_ps(even), d),
                                        _mm512_mul_ps(_mm512_cvtepi32_ps(odd), d)));
    }
  }
};

struct PanelBF16 {
  static constexpr int kType = weight::kBF16;
  static constexpr int kParts = 1;
  static constexpr int64_t kStepBytes = 2 * kBf16TileBytes;
  static constexpr ActivationFormat kRows = ActivationFormat::kBf16Pair;
  static constexpr bool kIsTiles = true;

  static void pack(const uint8_t* row, int64_t n_in, int64_t r, uint8_t* panel) {
    for (int64_t k = 0; k < n_in; ++k) {
      std::memcpy(panel + k / 32 * kStepBytes + r / 16 * kBf16TileBytes + k % 32 / 2 * 64 +
                      r % 16 * 4 + k % 2 * 2,
                  row + 2 * k, 2);
    }
  }
  static void expand(const uint8_t* step, int t, uint8_t*) {
    for (int i = 0; i < 16; ++i) x16::prefetch(step + kBf16TileBytes * t + 64 * i);
  }
};

inline __m512 load_values(const uint8_t* p, float) {
  return _mm512_load_ps(p);
}
inline __m512 load_values(const uint8_t* p, uint16_t) {
  return x16::load_f16(p);
}

// Float values, evens before odds in each row as with Q8_0. Value: float or, for binary16,
// uint16_t.
template <int kWeightType, class Value>
struct PanelFloat {
  static constexpr int kType = kWeightType;
  static constexpr int kParts = 2;
  static constexpr int64_t kBytes = sizeof(Value);
  static constexpr int64_t kHalfStepBytes = 16 * 32 * kBytes;
  static constexpr int64_t kStepBytes = 2 * kHalfStepBytes;
  static constexpr ActivationFormat kRows = ActivationFormat::kBf16Pair;
  static constexpr bool kIsTiles = false;

  static void pack(const uint8_t* row, int64_t n_in, int64_t r, uint8_t* panel) {
    for (int64_t k = 0; k < n_in; ++k) {
      std::memcpy(panel + k / 32 * kStepBytes + r / 16 * kHalfStepBytes +
                      (k % 32 / 2 * 32 + k % 2 * 16 + r % 16) * kBytes,
                  row + kBytes * k, kBytes);
    }
  }
  static void expand(const uint8_t* step, int t, uint8_t* tile) {
    const uint8_t* from = step + kHalfStepBytes * t;
    for (int p = 0; p < 16; ++p, from += 32 * kBytes) {
      store_parts(load_values(from, Value{}), load_values(from + 16 * kBytes, Value{}),
                  tile + 64 * p);
    }
  }
};
using PanelF16 = PanelFloat<weight::kF16, uint16_t>;
using PanelF32 = PanelFloat<weight::kF32, float>;

}  // namespace amx_bf16
}  // namespace
}  // namespace okibi::cpu
