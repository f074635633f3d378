// What the AMX products share: the tile configuration, and storing sums.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace amx_tile {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileFloats = 256;

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

// Tiles 0 to 3, one after another.
inline void store_sums(float* sums) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileFloats, 64);
  _tile_stored(2, sums + 2 * kTileFloats, 64);
  _tile_stored(3, sums + 3 * kTileFloats, 64);
  x16::settle_memory();
}

}  // namespace amx_tile
}  // namespace
}  // namespace okibi::cpu
