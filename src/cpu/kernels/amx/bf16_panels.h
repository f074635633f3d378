// Weights of the bfloat16 products, packed as the tiles that the unit takes: a panel is 32 outputs,
// a step 32 k of it, [step][part][tile of 16 outputs], 1 KiB a tile. Row p of a tile holds values
// 2p and 2p + 1 of each of its outputs, side by side.
//
// A type has kType, kParts (bfloat16 numbers per weight, whose sum it is to 16 bits), kRows (the
// activations' format) and load(), which reads values k .. k + 31 of a file row, those from n_in on
// zero.
#pragma once

#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/avx512/x16.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
namespace amx_bf16 {

struct Values32 {
  __m512 low, high;
};

// A weight is fl(d q) rounded.
struct WeightsQ8_0 {
  static constexpr int kType = weight::kQ8_0;
  static constexpr int kParts = 1;
  static constexpr ActivationFormat kRows = ActivationFormat::kBf16;

  static Values32 load(const uint8_t* row, int64_t k, int64_t) {
    const uint8_t* block = row + k / 32 * 34;
    uint16_t scale;
    std::memcpy(&scale, block, 2);
    const __m512 d = _mm512_set1_ps(_cvtsh_ss(scale));
    const auto* codes = reinterpret_cast<const __m128i*>(block + 2);
    return {_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(codes))), d),
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(codes + 1))), d)};
  }
};

inline __m512 load_bf16(const uint8_t* p, __mmask16 mask) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
inline __m512 load_f16(const uint8_t* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}
inline __m512 load_f32(const uint8_t* p, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, p);
}

// One number after another; kLoad reads 16 of them.
template <int kWeightType, int kWeightParts, __m512 (*kLoad)(const uint8_t*, __mmask16)>
struct PlainWeights {
  static constexpr int kType = kWeightType;
  static constexpr int kParts = kWeightParts;
  static constexpr ActivationFormat kRows = ActivationFormat::kBf16Pair;

  static Values32 load(const uint8_t* row, int64_t k, int64_t n_in) {
    constexpr int64_t kBytes = weight::shape_of(kType).bytes;
    return {kLoad(row + k * kBytes, mask_at(k, n_in)),
            kLoad(row + (k + 16) * kBytes, mask_at(k + 16, n_in))};
  }
};
using WeightsBF16 = PlainWeights<weight::kBF16, 1, load_bf16>;
using WeightsF16 = PlainWeights<weight::kF16, 2, load_f16>;
using WeightsF32 = PlainWeights<weight::kF32, 2, load_f32>;

template <class W>
constexpr int64_t step_bytes() {
  return W::kParts * 2 * kBf16TileBytes;
}

// File rows to a panel.
template <class W>
void pack_panel(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  constexpr weight::BlockShape shape = weight::shape_of(W::kType);
  const int64_t row_bytes = n_in / shape.values * shape.bytes;
  const __m512i tile_rows =
      _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 6);
  for (int64_t r = 0; r < n_rows; ++r) {
    uint8_t* to = panel + r / 16 * kBf16TileBytes + r % 16 * 4;
    for (int64_t k = 0; k < n_in; k += kBf16StepValues, to += step_bytes<W>()) {
      const Values32 v = W::load(rows + r * row_bytes, k, n_in);
      _mm512_i32scatter_epi32(to, tile_rows, to_bf16(v.low, v.high), 1);
      if constexpr (W::kParts == 2) {
        _mm512_i32scatter_epi32(
            to + 2 * kBf16TileBytes, tile_rows,
            to_bf16(_mm512_sub_ps(v.low, rounded(v.low)), _mm512_sub_ps(v.high, rounded(v.high))),
            1);
      }
    }
  }
}

}  // namespace amx_bf16
}  // namespace
}  // namespace okibi::cpu
