// Tile products of bfloat16 in runs: 32 rows by 32 columns over some steps of 32 of the inner
// dimension, 4 products a step. A run's sums are stored one by one before the next run's first
// product into the same tile, when they are complete: right after its last product, each would wait
// 52 cycles and then hold the next up.
//
// Tiles 0-3: sums (left columns of rows 0-15 and 16-31, then right); 4, 5 rows; 6, 7 columns.
#pragma once

#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace amx_tile {

constexpr int64_t kRunFloats = 4 * kTileFloats;

// Runs over the same rows, their sums one after another.
struct Runs {
  int64_t n_runs = 0, n_steps = 0;  // of each run
  const uint8_t* rows = nullptr;    // two tiles, one after the other
  int64_t row_step = 0;             // bytes, as the next three
  const uint8_t* columns = nullptr;
  int64_t column_tile = 0, column_step = 0, column_run = 0;
  float* sums = nullptr;     // the four tiles in their order
  bool accumulates = false;  // onto what is there
};

// Columns are loaded past the first-level cache.
inline void multiply_step(const uint8_t* rows, const uint8_t* columns, int64_t column_tile) {
  _tile_stream_loadd(6, columns, 64);
  _tile_loadd(4, rows, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(5, rows + kTileBytes, 64);
  _tile_dpbf16ps(1, 5, 6);
  _tile_stream_loadd(7, columns + column_tile, 64);
  _tile_dpbf16ps(2, 4, 7);
  _tile_dpbf16ps(3, 5, 7);
}

// A tile of sums for its next run, after that of `waiting` is stored. GCC wants the tile's digit.
#define OKIBI_BEGIN_SUM(tile)                                                     \
  do {                                                                            \
    if (waiting != nullptr) _tile_stored(tile, waiting + (tile)*kTileFloats, 64); \
    if (r.accumulates) {                                                          \
      _tile_loadd(tile, sums + (tile)*kTileFloats, 64);                           \
    } else {                                                                      \
      _tile_zero(tile);                                                           \
    }                                                                             \
  } while (false)

inline void first_step(const Runs& r, const uint8_t* columns, const float* sums, float* waiting) {
  _tile_stream_loadd(6, columns, 64);
  _tile_loadd(4, r.rows, 64);
  OKIBI_BEGIN_SUM(0);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(5, r.rows + kTileBytes, 64);
  OKIBI_BEGIN_SUM(1);
  _tile_dpbf16ps(1, 5, 6);
  _tile_stream_loadd(7, columns + r.column_tile, 64);
  OKIBI_BEGIN_SUM(2);
  _tile_dpbf16ps(2, 4, 7);
  OKIBI_BEGIN_SUM(3);
  _tile_dpbf16ps(3, 5, 7);
}

#undef OKIBI_BEGIN_SUM

// The sums of the last run are left in the tiles; where they go is returned. `waiting` says it of
// the run before these, if there was one.
inline float* multiply(const Runs& r, float* waiting) {
  for (int64_t i = 0; i < r.n_runs; ++i) {
    const uint8_t* columns = r.columns + i * r.column_run;
    float* sums = r.sums + i * kRunFloats;
    first_step(r, columns, sums, waiting);
    for (int64_t k = 1; k < r.n_steps; ++k) {
      multiply_step(r.rows + k * r.row_step, columns + k * r.column_step, r.column_tile);
    }
    waiting = sums;
  }
  return waiting;
}

// Some runs, then others, which may overwrite what the first read.
inline void multiply(const Runs& first, const Runs& second) {
  x16::settle_memory();
  store_sums(multiply(second, multiply(first, nullptr)));
}

}  // namespace amx_tile
}  // namespace
}  // namespace okibi::cpu
