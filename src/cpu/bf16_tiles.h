// Activations for products by units that take bfloat16 factors. Plain data, so ISA files may
// include it. A pair of 16-row tiles is the unit: 32 rows, those past the last zero.
//   chunk of at most 24 steps, pair of tiles, step of 32 k, part, tile: 16 rows of 32 values (1
//   KiB)
// A step of a pair is one run of memory, and what a chunk of the product reads of a pair too. kBf16
// has one part, the value rounded; kBf16Pair two, whose sum is the value to 16 bits: the value
// rounded, and what that left over, rounded.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu {

constexpr int64_t kBf16MaxChunkSteps = 24;
constexpr int64_t kBf16StepValues = 32;
constexpr int64_t kBf16PairRows = 32;
constexpr int64_t kBf16TileBytes = 1024;

constexpr int64_t bf16_parts(ActivationFormat format) {
  return format == ActivationFormat::kBf16Pair ? 2 : 1;
}
constexpr bool is_bf16(ActivationFormat format) {
  return format == ActivationFormat::kBf16 || format == ActivationFormat::kBf16Pair;
}
constexpr int64_t bf16_steps(int64_t n_in) {
  return (n_in + kBf16StepValues - 1) / kBf16StepValues;
}
constexpr int64_t bf16_chunks(int64_t n_in) {
  return (bf16_steps(n_in) + kBf16MaxChunkSteps - 1) / kBf16MaxChunkSteps;
}
constexpr int64_t bf16_pairs(int64_t n_rows) {
  return (n_rows + kBf16PairRows - 1) / kBf16PairRows;
}
constexpr int64_t bf16_tiles_bytes(int64_t n_parts, int64_t n_rows, int64_t n_in) {
  return bf16_pairs(n_rows) * bf16_steps(n_in) * n_parts * 2 * kBf16TileBytes;
}

// Chunks are as equal as can be.
constexpr int64_t bf16_chunk_begin(int64_t n_in, int64_t chunk) {
  return bf16_steps(n_in) * chunk / bf16_chunks(n_in);
}
constexpr int64_t bf16_chunk_steps(int64_t n_in, int64_t chunk) {
  return bf16_chunk_begin(n_in, chunk + 1) - bf16_chunk_begin(n_in, chunk);
}
// The chunk that a step belongs to.
constexpr int64_t bf16_chunk_of(int64_t n_in, int64_t step) {
  return ((step + 1) * bf16_chunks(n_in) - 1) / bf16_steps(n_in);
}

// Where the steps of a chunk begin for a pair of tiles.
struct Bf16Run {
  int64_t offset, n_steps;
};
constexpr Bf16Run bf16_run(int64_t n_parts, int64_t n_pairs, int64_t n_in, int64_t chunk,
                           int64_t pair) {
  const int64_t n_steps = bf16_chunk_steps(n_in, chunk);
  const int64_t first = bf16_chunk_begin(n_in, chunk) * n_pairs + pair * n_steps;
  return {first * n_parts * 2 * kBf16TileBytes, n_steps};
}

// Where one step of a pair begins.
constexpr int64_t bf16_step_offset(int64_t n_parts, int64_t n_pairs, int64_t n_in, int64_t step,
                                   int64_t pair) {
  const int64_t chunk = bf16_chunk_of(n_in, step);
  return bf16_run(n_parts, n_pairs, n_in, chunk, pair).offset +
         (step - bf16_chunk_begin(n_in, chunk)) * n_parts * 2 * kBf16TileBytes;
}

}  // namespace okibi::cpu
