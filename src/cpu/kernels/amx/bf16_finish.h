// Where the results of the bfloat16 products go, a few rows at a time beside the products of the
// next block: the tile unit needs the vector ports for next to nothing. A block is 32 rows by 32
// outputs, in four tiles of 16 by 16: rows 0-15 left and right, then rows 16-31.
//
// A target is made of a block (args, pair, panel). kPadsRows says whether it wants padding rows,
// write(r, left, right) takes row r, the rows in order. With kMatrices = 2 it is also given the
// block of the first matrix, and takes the rows of the second.
#pragma once

#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/coarse_math.h"
#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/x16.h"
#include "cpu/view_attend.h"

namespace okibi::cpu {
namespace {
namespace amx_bf16 {

constexpr int64_t kPanelOutputs = 32;
using amx_tile::kTileFloats;
constexpr int64_t kBlockFloats = 4 * kTileFloats;

// Stored as float32, or added to what is there.
class FloatRows {
 public:
  static constexpr bool kPadsRows = false;
  static constexpr int64_t kMatrices = 1;
  FloatRows() = default;
  FloatRows(const ProductArgs& args, int64_t pair, int64_t panel)
      : out_(args.out + pair * kBf16PairRows * args.out_stride + panel * kPanelOutputs),
        stride_(args.out_stride),
        scale_(args.w.scale),
        accumulate_(args.accumulate),
        stream_(streams(args, panel)) {
    masks_[0] = x16::panel_mask(args, 2 * panel);  // which counts panels of 16 outputs
    if (args.w.n_out > panel * kPanelOutputs + 16) masks_[1] = x16::panel_mask(args, 2 * panel + 1);
  }

  void write(int64_t r, __m512 left, __m512 right) const {
    write_half(out_ + r * stride_, masks_[0], left);
    write_half(out_ + r * stride_ + 16, masks_[1], right);
  }

 private:
  // Results that leave the caches before they are read again go past them (tile_walk.h).
  static bool streams(const ProductArgs& args, int64_t panel) {
    constexpr int64_t kCacheBytes = 1 << 20;
    return !args.accumulate && args.w.n_out >= (panel + 1) * kPanelOutputs &&
           args.row_end * args.w.n_out * 4 > kCacheBytes && args.out_stride % 16 == 0 &&
           (reinterpret_cast<uintptr_t>(args.out) & 63) == 0;
  }
  void write_half(float* to, __mmask16 mask, __m512 sum) const {
    __m512 result = _mm512_mul_ps(sum, _mm512_set1_ps(scale_));
    if (stream_) {
      _mm512_stream_ps(to, result);
      return;
    }
    if (accumulate_) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), result);
    _mm512_mask_storeu_ps(to, mask, result);
  }

  float* out_ = nullptr;
  int64_t stride_ = 0;
  float scale_ = 1.0f;
  bool accumulate_ = false, stream_ = false;
  __mmask16 masks_[2] = {};
};

// result + bias of a panel. Outputs past the last have no weights and no bias: they are zero.
class BiasedPanel {
 public:
  BiasedPanel() = default;
  BiasedPanel(const ProductArgs& args, int64_t panel) : scale_(args.w.scale) {
    const float* bias = args.rounded.bias + panel * kPanelOutputs;
    const int64_t n = args.w.n_out - panel * kPanelOutputs;
    bias_[0] = _mm512_maskz_loadu_ps(mask_at(0, n), bias);
    bias_[1] = _mm512_maskz_loadu_ps(mask_at(16, n), bias + 16);
  }
  // Of the left (0) or the right half.
  __m512 add(__m512 sum, int half) const {
    return _mm512_add_ps(_mm512_mul_ps(sum, _mm512_set1_ps(scale_)), bias_[half]);
  }

 private:
  float scale_ = 1.0f;
  __m512 bias_[2] = {};
};

// The input of the next product, whose step of its rows the block is: 2 KiB one after another.
class GeluTiles {
 public:
  static constexpr bool kPadsRows = true;
  static constexpr int64_t kMatrices = 1;
  GeluTiles() = default;
  GeluTiles(const ProductArgs& args, int64_t pair, int64_t panel)
      : tiles_(args.rounded.tiles +
               bf16_step_offset(1, args.rounded.n_pairs, args.w.n_out, panel, pair)),
        biased_(args, panel) {}

  void write(int64_t r, __m512 left, __m512 right) const {
    x16::store(tiles_ + 64 * r, to_bf16(coarse_gelu_tanh(biased_.add(left, 0)),
                                        coarse_gelu_tanh(biased_.add(right, 1))));
  }

 private:
  uint8_t* tiles_ = nullptr;
  BiasedPanel biased_;
};

// The same of a gated feed-forward.
class SiluTiles {
 public:
  static constexpr bool kPadsRows = true;
  static constexpr int64_t kMatrices = 2;
  SiluTiles() = default;
  SiluTiles(const ProductArgs& args, int64_t pair, int64_t panel, const float* gate)
      : tiles_(args.rounded.tiles +
               bf16_step_offset(1, args.rounded.n_pairs, args.w.n_out, panel, pair)),
        gate_(gate),
        gate_scale_(args.w.scale),
        up_scale_(args.rounded.up_scale) {}

  void write(int64_t r, __m512 left, __m512 right) const {
    const float* gate = gate_ + r / 16 * 2 * kTileFloats + r % 16 * 16;
    x16::store(tiles_ + 64 * r, to_bf16(gated(gate, left), gated(gate + kTileFloats, right)));
  }

 private:
  __m512 gated(const float* gate, __m512 up) const {
    const __m512 g = _mm512_mul_ps(_mm512_load_ps(gate), _mm512_set1_ps(gate_scale_));
    return _mm512_mul_ps(coarse_silu(g), _mm512_mul_ps(up, _mm512_set1_ps(up_scale_)));
  }

  uint8_t* tiles_ = nullptr;
  const float* gate_ = nullptr;
  float gate_scale_ = 1.0f, up_scale_ = 1.0f;
};

// Queries and keys of a view: 32 rows of 32 dims are 2 KiB one after another, keys with the rows
// and the pairs of dims of each tile exchanged.
template <bool kIsKeys>
class QueryTiles {
 public:
  static constexpr bool kPadsRows = true;
  static constexpr int64_t kMatrices = 1;
  QueryTiles() = default;
  QueryTiles(const ProductArgs& args, int64_t pair, int64_t panel)
      : tiles_(args.rounded.tiles + (panel * args.rounded.n_pairs + pair) * 2 * kBf16TileBytes),
        biased_(args, panel) {}

  void write(int64_t r, __m512 left, __m512 right) const {
    x16::store(tiles_ + 64 * (kIsKeys ? view_key_row(r) : r),
               to_bf16(biased_.add(left, 0), biased_.add(right, 1)));
    if (!kIsKeys || r + 1 < kBf16PairRows) return;
    transpose(tiles_);
    transpose(tiles_ + kBf16TileBytes);
  }

 private:
  static void transpose(uint8_t* tile) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = x16::load(tile + 64 * i);
    x16::store_transposed(rows, tile, 64);
  }

  uint8_t* tiles_ = nullptr;
  BiasedPanel biased_;
};

// Values of a view: neighbouring rows share a row of a tile, so one of them waits for the next.
class ValueTiles {
 public:
  static constexpr bool kPadsRows = true;
  static constexpr int64_t kMatrices = 1;
  ValueTiles() = default;
  ValueTiles(const ProductArgs& args, int64_t pair, int64_t panel)
      : right_(args.rounded.n_pairs * kBf16TileBytes),
        tiles_(args.rounded.tiles + 2 * panel * right_ + pair * kBf16TileBytes),
        biased_(args, panel) {}

  void write(int64_t r, __m512 left, __m512 right) {
    left = biased_.add(left, 0);
    right = biased_.add(right, 1);
    if (r % 2 != 0) {
      x16::store(tiles_ + 32 * (r - 1), pair_up(even_[0], left));
      x16::store(tiles_ + right_ + 32 * (r - 1), pair_up(even_[1], right));
    }
    even_[0] = left;
    even_[1] = right;
  }

 private:
  int64_t right_ = 0;  // from the tile of the left half to that of the right
  uint8_t* tiles_ = nullptr;
  BiasedPanel biased_;
  __m512 even_[2] = {};
};

// The block whose rows are on their way.
template <class Target>
class Finishing {
 public:
  Finishing() = default;
  // Rows [row, end) of the block of which `target` writes.
  Finishing(const float* block, int64_t row, int64_t end, const Target& target)
      : block_(block), row_(row), end_(end), target_(target) {}

  [[gnu::always_inline]] inline void write_rows(int64_t n) {
    for (const int64_t last = x16::min64(row_ + n, end_); row_ < last; ++row_) {
      const float* left = block_ + row_ / 16 * 2 * kTileFloats + row_ % 16 * 16;
      target_.write(row_, _mm512_load_ps(left), _mm512_load_ps(left + kTileFloats));
    }
  }

 private:
  const float* block_ = nullptr;
  int64_t row_ = 0, end_ = 0;
  Target target_;
};

}  // namespace amx_bf16
}  // namespace
}  // namespace okibi::cpu
