// Tile configuration for the AMX products, and the cutting of rows into tiles of equal height.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace amx_tile {

// The operand of ldtilecfg.
struct alignas(64) Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t n_rows, int64_t n_bytes) {
    rows[tile] = static_cast<uint8_t>(n_rows);
    bytes_per_row[tile] = static_cast<uint16_t>(n_bytes);
  }
};

inline void load_config(const Config& config) {
  x16::settle_memory();
  _tile_loadconfig(&config);
}

// n rows as tiles of the same height, so that one configuration serves them all. Where the height
// does not divide n, the last tile starts early and repeats rows of the one before.
struct RowTiles {
  int64_t n_rows, n_tiles, height;
  RowTiles(int64_t n, int64_t most)
      : n_rows(n), n_tiles((n + most - 1) / most), height((n + n_tiles - 1) / n_tiles) {}
  int64_t first(int64_t tile) const { return x16::min64(tile * height, n_rows - height); }
  // Rows at the head of the tile that belong to the one before.
  int64_t repeated(int64_t tile) const { return tile * height - first(tile); }
};

}  // namespace amx_tile
}  // namespace
}  // namespace okibi::cpu
