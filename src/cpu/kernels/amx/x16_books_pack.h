// File rows of the code-book types to x16 panels (x16_books.h) and back. Runs at load time.
#pragma once

#include "cpu/kernels/amx/x16_books.h"

namespace okibi::cpu {
namespace {
namespace books {

// ---- one super-block of row r, per type. Panels are zero before packing.

inline void pack_unit(IQ2_XXS, const uint8_t* b, int64_t r, uint8_t* unit) {
  for (int g = 0; g < 8; ++g) {
    std::memcpy(unit + 32 + 128 * g + 4 * r, b + 2 + 8 * g, 4);
    std::memcpy(unit + 96 + 128 * g + 4 * r, b + 6 + 8 * g, 4);
  }
}
inline void unpack_unit(IQ2_XXS, const uint8_t* unit, int64_t r, uint8_t* b) {
  for (int g = 0; g < 8; ++g) {
    std::memcpy(b + 2 + 8 * g, unit + 32 + 128 * g + 4 * r, 4);
    std::memcpy(b + 6 + 8 * g, unit + 96 + 128 * g + 4 * r, 4);
  }
}

// Of index i of four in a group: its byte among the 64, the word of 64 bits, its place in that.
struct PlaceXs {
  int64_t byte, word, place;
  PlaceXs(int64_t r, int i)
      : byte(16 * (r / 4) + 8 * (i >> 1) + 2 * (r % 4) + (i & 1)),
        word(byte / 8),
        place(byte % 8) {}
};
inline void pack_unit(IQ2_XS, const uint8_t* b, int64_t r, uint8_t* unit) {
  for (int n = 0; n < 32; ++n) {
    uint16_t w;
    std::memcpy(&w, b + 2 + 2 * n, 2);
    const PlaceXs at(r, n % 4);
    uint8_t* group = unit + 32 + 128 * (n / 4);
    group[at.byte] = static_cast<uint8_t>(w);
    uint64_t fields;
    std::memcpy(&fields, group + 64 + 8 * at.word, 8);
    fields |= static_cast<uint64_t>(w >> 9) << (7 * at.place);
    fields |= static_cast<uint64_t>(w >> 8 & 1) << (56 + at.place);
    std::memcpy(group + 64 + 8 * at.word, &fields, 8);
  }
  for (int h = 0; h < 2; ++h) {
    std::memcpy(unit + IQ2_XS::kScalesAt + 64 * h + 4 * r, b + 66 + 4 * h, 4);
  }
}
inline void unpack_unit(IQ2_XS, const uint8_t* unit, int64_t r, uint8_t* b) {
  for (int n = 0; n < 32; ++n) {
    const PlaceXs at(r, n % 4);
    const uint8_t* group = unit + 32 + 128 * (n / 4);
    uint64_t fields;
    std::memcpy(&fields, group + 64 + 8 * at.word, 8);
    const auto w = static_cast<uint16_t>(group[at.byte] | (fields >> (56 + at.place) & 1) << 8 |
                                         (fields >> (7 * at.place) & 127) << 9);
    std::memcpy(b + 2 + 2 * n, &w, 2);
  }
  for (int h = 0; h < 2; ++h) {
    std::memcpy(b + 66 + 4 * h, unit + IQ2_XS::kScalesAt + 64 * h + 4 * r, 4);
  }
}

inline void pack_unit(IQ3_XXS, const uint8_t* b, int64_t r, uint8_t* unit) {
  for (int n = 0; n < 64; ++n) {
    unit[32 + 192 * (n / 8) + 64 * (n & 1) + 4 * r + n % 8 / 2] = b[2 + n];
  }
  for (int g = 0; g < 8; ++g) std::memcpy(unit + 160 + 192 * g + 4 * r, b + 66 + 4 * g, 4);
}
inline void unpack_unit(IQ3_XXS, const uint8_t* unit, int64_t r, uint8_t* b) {
  for (int n = 0; n < 64; ++n) {
    b[2 + n] = unit[32 + 192 * (n / 8) + 64 * (n & 1) + 4 * r + n % 8 / 2];
  }
  for (int g = 0; g < 8; ++g) std::memcpy(b + 66 + 4 * g, unit + 160 + 192 * g + 4 * r, 4);
}

inline void pack_unit(IQ3_S, const uint8_t* b, int64_t r, uint8_t* unit) {
  for (int n = 0; n < 64; ++n) {
    uint8_t* group = unit + 32 + 208 * (n / 8);
    const int64_t at = 4 * r + n % 8 / 2;
    group[64 * (n & 1) + at] = b[2 + n];
    const int top = b[66 + n / 8] >> (n % 8) & 1;
    group[192 + 8 * (n & 1) + at / 8] |= static_cast<uint8_t>(top << (at % 8));
  }
  for (int g = 0; g < 8; ++g) std::memcpy(unit + 160 + 208 * g + 4 * r, b + 74 + 4 * g, 4);
  std::memcpy(unit + IQ3_S::kScalesAt + 4 * r, b + 106, 4);
}
inline void unpack_unit(IQ3_S, const uint8_t* unit, int64_t r, uint8_t* b) {
  std::memset(b + 66, 0, 8);
  for (int n = 0; n < 64; ++n) {
    const uint8_t* group = unit + 32 + 208 * (n / 8);
    const int64_t at = 4 * r + n % 8 / 2;
    b[2 + n] = group[64 * (n & 1) + at];
    const int top = group[192 + 8 * (n & 1) + at / 8] >> (at % 8) & 1;
    b[66 + n / 8] |= static_cast<uint8_t>(top << (n % 8));
  }
  for (int g = 0; g < 8; ++g) std::memcpy(b + 74 + 4 * g, unit + 160 + 208 * g + 4 * r, 4);
  std::memcpy(b + 106, unit + IQ3_S::kScalesAt + 4 * r, 4);
}

template <class F>
void pack_rows(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t n_blocks = n_in / 256;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      const uint8_t* block = rows + (r * n_blocks + b) * F::kFileBytes;
      uint8_t* unit = panel + b * F::kUnitBytes;
      std::memcpy(unit + 2 * r, block, 2);
      pack_unit(F(), block, r, unit);
    }
  }
}
template <class F>
void unpack_row(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for (int64_t b = 0; b < n_in / 256; ++b) {
    const uint8_t* unit = panel + b * F::kUnitBytes;
    std::memcpy(file_row + b * F::kFileBytes, unit + 2 * row, 2);
    unpack_unit(F(), unit, row, file_row + b * F::kFileBytes);
  }
}

}  // namespace books
}  // namespace
}  // namespace okibi::cpu
