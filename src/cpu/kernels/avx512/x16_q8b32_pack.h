// File rows of the 32-value types to x16 panels (x16_q8b32.h) and back. Runs at load time.
#pragma once

#include "cpu/kernels/avx512/x16_q8b32.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// A block in the file: scale, the minimum where there is one, the fifth bits where there are any,
// codes. The first two stand in the panel as they are.
template <class T>
constexpr int64_t kFileScaleBytes = T::kScaleBytes / 16;
template <class T>
constexpr int64_t kCodesAt = kFileScaleBytes<T> + (T::kBits == 5 ? 4 : 0);
template <class T>
constexpr int64_t kFileBlockBytes = kCodesAt<T> +
                                    (T::kBits == 5 ? 16 : T::kFileValues * T::kBits / 8);

// The codes of a file block as the panel stores them, in order of k.
template <class T>
void read_codes(const uint8_t* block, uint8_t* codes) {
  const uint8_t* q = block + kCodesAt<T>;
  if constexpr (T::kBits == 8) {
    for (int i = 0; i < 32; ++i) codes[i] = q[i] ^ 0x80;
  } else if constexpr (T::kBits <= 2) {
    constexpr int kPerByte = 8 / T::kBits, kMask = (1 << T::kBits) - 1;
    for (int i = 0; i < T::kFileValues; ++i) {
      codes[i] = (q[i / kPerByte] >> (T::kBits * (i % kPerByte))) & kMask;
    }
  } else {
    for (int i = 0; i < 16; ++i) {
      codes[i] = q[i] & 15;
      codes[i + 16] = q[i] >> 4;
    }
  }
  if constexpr (T::kBits == 5) {
    uint32_t fifth;
    std::memcpy(&fifth, q - 4, 4);
    for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((fifth >> i) & 1) << 4);
  }
}

// The inverse; `block` is zero.
template <class T>
void write_codes(const uint8_t* codes, uint8_t* block) {
  uint8_t* q = block + kCodesAt<T>;
  if constexpr (T::kBits == 8) {
    for (int i = 0; i < 32; ++i) q[i] = codes[i] ^ 0x80;
  } else if constexpr (T::kBits <= 2) {
    constexpr int kPerByte = 8 / T::kBits;
    for (int i = 0; i < T::kFileValues; ++i) {
      q[i / kPerByte] |= static_cast<uint8_t>(codes[i] << (T::kBits * (i % kPerByte)));
    }
  } else {
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 16] << 4);
    }
  }
  if constexpr (T::kBits == 5) {
    uint32_t fifth = 0;
    for (int i = 0; i < 32; ++i) fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(q - 4, &fifth, 4);
  }
}

// Code k of block h of a unit, for row r: ORed into a zeroed unit, or read.
template <class T>
void put_code(uint8_t* unit, int h, int64_t r, int k, uint8_t code) {
  uint8_t* lane = unit + 4 * r + k % 4;  // of vector 0
  const int j = k / 4, x = 8 * h + j;
  if constexpr (T::kBits == 8) {
    lane[64 * x] = code;
  } else if constexpr (T::kBits <= 2) {
    constexpr int kVectors = T::kBits * 2;
    lane[64 * (x % kVectors)] |= static_cast<uint8_t>(code << (x / kVectors * T::kBits));
  } else {
    lane[64 * j] |= static_cast<uint8_t>((code & 15) << (4 * h));
    if (T::kBits == 5) lane[512 + 64 * h] |= static_cast<uint8_t>((code >> 4) << j);
  }
}
template <class T>
uint8_t get_code(const uint8_t* unit, int h, int64_t r, int k) {
  const uint8_t* lane = unit + 4 * r + k % 4;
  const int j = k / 4, x = 8 * h + j;
  int code;
  if constexpr (T::kBits == 8) {
    code = lane[64 * x];
  } else if constexpr (T::kBits <= 2) {
    constexpr int kVectors = T::kBits * 2;
    code = (lane[64 * (x % kVectors)] >> (x / kVectors * T::kBits)) & ((1 << T::kBits) - 1);
  } else {
    code = (lane[64 * j] >> (4 * h)) & 15;
    if (T::kBits == 5) code |= ((lane[512 + 64 * h] >> j) & 1) << 4;
  }
  return static_cast<uint8_t>(code);
}

template <class T>
void pack32(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t n_blocks = n_in / T::kFileValues;
  constexpr int64_t kScale = kFileScaleBytes < T >> 2 ? 2 : kFileScaleBytes<T>;
  uint8_t* units = panel + units_offset<T>(n_in);
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      const uint8_t* block = rows + (r * n_blocks + b) * kFileBlockBytes<T>;
      uint8_t* scales = panel + b * T::kScaleBytes;
      std::memcpy(scales + kScale * r, block, kScale);
      if (T::kHasMin) std::memcpy(scales + 32 + 2 * r, block + 2, 2);
      uint8_t codes[T::kFileValues];
      read_codes<T>(block, codes);
      for (int k = 0; k < T::kFileValues; ++k) {
        const int64_t b32 = b * (T::kFileValues / 32) + k / 32;
        put_code<T>(units + b32 / 2 * T::kUnitBytes, static_cast<int>(b32 & 1), r, k % 32,
                    codes[k]);
      }
    }
  }
}

template <class T>
void unpack32(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  constexpr int64_t kScale = kFileScaleBytes < T >> 2 ? 2 : kFileScaleBytes<T>;
  const uint8_t* units = panel + units_offset<T>(n_in);
  for (int64_t b = 0; b < n_in / T::kFileValues; ++b) {
    uint8_t* block = file_row + b * kFileBlockBytes<T>;
    const uint8_t* scales = panel + b * T::kScaleBytes;
    std::memset(block, 0, static_cast<size_t>(kFileBlockBytes<T>));
    std::memcpy(block, scales + kScale * row, kScale);
    if (T::kHasMin) std::memcpy(block + 2, scales + 32 + 2 * row, 2);
    uint8_t codes[T::kFileValues];
    for (int k = 0; k < T::kFileValues; ++k) {
      const int64_t b32 = b * (T::kFileValues / 32) + k / 32;
      codes[k] =
          get_code<T>(units + b32 / 2 * T::kUnitBytes, static_cast<int>(b32 & 1), row, k % 32);
    }
    write_codes<T>(codes, block);
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
