// The packed layouts of the AVX2 level: eight output rows side by side, each field of the file's
// block cut into pieces of a few bytes and the pieces of the eight rows laid next to each other, so
// that a 32-byte load holds 4 bytes of every row. Nothing is decoded: the layout keeps the file's
// bits and can give them back.
//
// A panel is n_blocks main parts, then n_blocks tails; what is loaded in whole vectors stands in
// the main parts, whose size is a multiple of 32 bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/weight_types.h"

namespace okibi::cpu::avx2 {
namespace {

constexpr int kPanelRows = 8;

// `size` bytes at `file_offset` of a block, cut into pieces of `unit`, go to `offset` of the main
// part or the tail.
struct Field {
  int32_t file_offset, size, unit, offset;
  bool in_tail;
};

// Formats give kType, kFields, kMain and kTail: bytes of both parts for one block and eight rows.
template <typename Format>
constexpr int64_t n_blocks(int64_t n_in) {
  return n_in / weight::shape_of(Format::kType).values;
}

template <typename Format>
int64_t panel_bytes(int64_t n_in) {
  return (n_blocks<Format>(n_in) * (Format::kMain + Format::kTail) + 63) / 64 * 64;
}

// Calls move(panel byte, file byte, n) for every piece of one row.
template <typename Format, typename Move>
inline void for_each_piece(int64_t n_in, int64_t row, const Move& move) {
  constexpr weight::BlockShape kShape = weight::shape_of(Format::kType);
  const int64_t n = n_blocks<Format>(n_in);
  for (int64_t b = 0; b < n; ++b) {
    for (const Field& f : Format::kFields) {
      const int64_t part = f.in_tail ? n * Format::kMain + b * Format::kTail : b * Format::kMain;
      for (int32_t i = 0; i < f.size / f.unit; ++i) {
        move(part + f.offset + (i * kPanelRows + row) * f.unit,
             b * kShape.bytes + f.file_offset + i * f.unit, f.unit);
      }
    }
  }
}

template <typename Format>
void pack(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t row_bytes = n_blocks<Format>(n_in) * weight::shape_of(Format::kType).bytes;
  for (int64_t r = 0; r < n_rows; ++r) {
    const uint8_t* row = rows + r * row_bytes;
    for_each_piece<Format>(n_in, r, [&](int64_t in_panel, int64_t in_file, int32_t n) {
      std::memcpy(panel + in_panel, row + in_file, static_cast<size_t>(n));
    });
  }
}

template <typename Format>
void unpack(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for_each_piece<Format>(n_in, row, [&](int64_t in_panel, int64_t in_file, int32_t n) {
    std::memcpy(file_row + in_file, panel + in_panel, static_cast<size_t>(n));
  });
}

}  // namespace
}  // namespace okibi::cpu::avx2
