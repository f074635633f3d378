// File rows of the 32-value types to x16 panels (x16_q8b32.h) and back. Runs at load time.
#pragma once

#include "cpu/kernels/avx512/x16_q8b32.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// A block in the file: d, the minimum where there is one, the fifth bits where there are any,
// codes.
template <class T>
constexpr int64_t kFifthAt = T::kHasMin ? 4 : 2;
template <class T>
constexpr int64_t kCodesAt = kFifthAt<T> + (T::kBits == 5 ? 4 : 0);
template <class T>
constexpr int64_t kFileBlockBytes = kCodesAt<T> + (T::kBits == 8 ? 32 : 16);

// The 32 codes of a file block, unsigned, in order of k.
template <class T>
void read_codes(const uint8_t* block, uint8_t* codes) {
  const uint8_t* q = block + kCodesAt<T>;
  if constexpr (T::kBits == 8) {
    for (int i = 0; i < 32; ++i) codes[i] = q[i] ^ 0x80;
    return;
  }
  for (int i = 0; i < 16; ++i) {
    codes[i] = q[i] & 15;
    codes[i + 16] = q[i] >> 4;
  }
  if constexpr (T::kBits == 5) {
    uint32_t fifth;
    std::memcpy(&fifth, block + kFifthAt<T>, 4);
    for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((fifth >> i) & 1) << 4);
  }
}

template <class T>
void write_codes(const uint8_t* codes, uint8_t* block) {
  uint8_t* q = block + kCodesAt<T>;
  if constexpr (T::kBits == 8) {
    for (int i = 0; i < 32; ++i) q[i] = codes[i] ^ 0x80;
    return;
  }
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 16] << 4);
  }
  if constexpr (T::kBits == 5) {
    uint32_t fifth = 0;
    for (int i = 0; i < 32; ++i) fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(block + kFifthAt<T>, &fifth, 4);
  }
}

template <class T>
void pack32(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t n_blocks = n_in / 32;
  uint8_t* units = panel + units_offset<T>(n_in);
  for (int64_t r = 0; r < n_rows; ++r) {
    const uint8_t* block = rows + r * n_blocks * kFileBlockBytes<T>;
    for (int64_t b = 0; b < n_blocks; ++b, block += kFileBlockBytes<T>) {
      uint8_t* scales = panel + b * kScaleBytes<T>;
      std::memcpy(scales + 2 * r, block, 2);
      if (T::kHasMin) std::memcpy(scales + 32 + 2 * r, block + 2, 2);
      uint8_t codes[32];
      read_codes<T>(block, codes);
      uint8_t* unit = units + b / 2 * T::kUnitBytes;
      const int h = static_cast<int>(b & 1);
      for (int k = 0; k < 32; ++k) {
        uint8_t* at = unit + 64 * (k / 4) + 4 * r + k % 4;
        if constexpr (T::kBits == 8) {
          at[512 * h] = codes[k];
        } else {
          *at |= static_cast<uint8_t>((codes[k] & 15) << (4 * h));
        }
        if constexpr (T::kBits == 5) {
          unit[512 + 64 * h + 4 * r + k % 4] |= static_cast<uint8_t>((codes[k] >> 4) << (k / 4));
        }
      }
    }
  }
}

template <class T>
void unpack32(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  const uint8_t* units = panel + units_offset<T>(n_in);
  for (int64_t b = 0; b < n_in / 32; ++b) {
    uint8_t* block = file_row + b * kFileBlockBytes<T>;
    const uint8_t* scales = panel + b * kScaleBytes<T>;
    std::memcpy(block, scales + 2 * row, 2);
    if (T::kHasMin) std::memcpy(block + 2, scales + 32 + 2 * row, 2);
    const uint8_t* unit = units + b / 2 * T::kUnitBytes;
    const int h = static_cast<int>(b & 1);
    uint8_t codes[32];
    for (int k = 0; k < 32; ++k) {
      const uint8_t* at = unit + 64 * (k / 4) + 4 * row + k % 4;
      codes[k] = T::kBits == 8 ? at[512 * h] : (*at >> (4 * h)) & 15;
      if constexpr (T::kBits == 5) {
        const int fifth = unit[512 + 64 * h + 4 * row + k % 4] >> (k / 4) & 1;
        codes[k] |= static_cast<uint8_t>(fifth << 4);
      }
    }
    write_codes<T>(codes, block);
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
