// File rows of the 256-value types to x16 panels (x16_q8b256.h) and back. Runs at load time.
#pragma once

#include "cpu/kernels/avx512/x16_q8b256.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// Copies n bytes of a row to vectors of four, or back.
inline void spread(const uint8_t* from, int n, int64_t r, uint8_t* vectors) {
  for (int i = 0; i < n; i += 4) std::memcpy(vectors + 16 * i + 4 * r, from + i, 4);
}
inline void gather(const uint8_t* vectors, int n, int64_t r, uint8_t* to) {
  for (int i = 0; i < n; i += 4) std::memcpy(to + i, vectors + 16 * i + 4 * r, 4);
}

// The twelve bytes of scale pairs of Q4_K and Q5_K.
inline void pack_scales_k(const uint8_t* s, int64_t r, uint8_t* vectors) {
  uint32_t sc[8], mn[8];
  for (int g = 0; g < 4; ++g) {
    sc[g] = s[g] & 63u;
    mn[g] = s[g + 4] & 63u;
    sc[g + 4] = (s[g + 8] & 15u) | (s[g] >> 6 << 4);
    mn[g + 4] = (s[g + 8] >> 4) | (s[g + 4] >> 6 << 4);
  }
  uint16_t halves[3][2];
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t rest = mn[4 + odd] | mn[6 + odd] << 6;
    halves[0][odd] = static_cast<uint16_t>(sc[odd] | sc[2 + odd] << 6 | (rest & 15) << 12);
    halves[1][odd] = static_cast<uint16_t>(sc[4 + odd] | sc[6 + odd] << 6 | (rest >> 4 & 15) << 12);
    halves[2][odd] = static_cast<uint16_t>(mn[odd] | mn[2 + odd] << 6 | (rest >> 8) << 12);
  }
  for (int v = 0; v < 3; ++v) std::memcpy(vectors + 64 * v + 4 * r, halves[v], 4);
}

inline void unpack_scales_k(const uint8_t* vectors, int64_t r, uint8_t* s) {
  uint32_t sc[8], mn[8];
  uint16_t halves[3][2];
  for (int v = 0; v < 3; ++v) std::memcpy(halves[v], vectors + 64 * v + 4 * r, 4);
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t rest =
        halves[0][odd] >> 12 | halves[1][odd] >> 12 << 4 | halves[2][odd] >> 12 << 8;
    sc[odd] = halves[0][odd] & 63u;
    sc[2 + odd] = halves[0][odd] >> 6 & 63u;
    sc[4 + odd] = halves[1][odd] & 63u;
    sc[6 + odd] = halves[1][odd] >> 6 & 63u;
    mn[odd] = halves[2][odd] & 63u;
    mn[2 + odd] = halves[2][odd] >> 6 & 63u;
    mn[4 + odd] = rest & 63u;
    mn[6 + odd] = rest >> 6;
  }
  for (int g = 0; g < 4; ++g) {
    s[g] = static_cast<uint8_t>(sc[g] | sc[g + 4] >> 4 << 6);
    s[g + 4] = static_cast<uint8_t>(mn[g] | mn[g + 4] >> 4 << 6);
    s[g + 8] = static_cast<uint8_t>((sc[g + 4] & 15) | (mn[g + 4] & 15) << 4);
  }
}

// One super-block of row r, per type.
inline void pack_unit(Q4_K, const uint8_t* b, int64_t r, uint8_t*, uint8_t* unit) {
  std::memcpy(unit + 2 * r, b, 2);
  std::memcpy(unit + 32 + 2 * r, b + 2, 2);
  pack_scales_k(b + 4, r, unit + 64);
  spread(b + 16, 128, r, unit + 256);
}
inline void unpack_unit(Q4_K, const uint8_t*, const uint8_t* unit, int64_t r, uint8_t* b) {
  std::memcpy(b, unit + 2 * r, 2);
  std::memcpy(b + 2, unit + 32 + 2 * r, 2);
  unpack_scales_k(unit + 64, r, b + 4);
  gather(unit + 256, 128, r, b + 16);
}

inline void pack_unit(Q5_K, const uint8_t* b, int64_t r, uint8_t*, uint8_t* unit) {
  std::memcpy(unit + 2 * r, b, 2);
  std::memcpy(unit + 32 + 2 * r, b + 2, 2);
  pack_scales_k(b + 4, r, unit + 64);
  spread(b + 48, 128, r, unit + 256);
  spread(b + 16, 32, r, unit + 2304);
}
inline void unpack_unit(Q5_K, const uint8_t*, const uint8_t* unit, int64_t r, uint8_t* b) {
  std::memcpy(b, unit + 2 * r, 2);
  std::memcpy(b + 2, unit + 32 + 2 * r, 2);
  unpack_scales_k(unit + 64, r, b + 4);
  gather(unit + 256, 128, r, b + 48);
  gather(unit + 2304, 32, r, b + 16);
}

inline void pack_unit(Q6_K, const uint8_t* b, int64_t r, uint8_t* head, uint8_t* unit) {
  std::memcpy(head + 2 * r, b + 208, 2);
  for (int v = 0; v < 4; ++v) {
    const uint8_t* s = b + 192 + 4 * v;
    const uint8_t lane[4] = {s[0], s[2], s[1], s[3]};
    std::memcpy(unit + 64 * v + 4 * r, lane, 4);
  }
  spread(b, 128, r, unit + 256);
  spread(b + 128, 64, r, unit + 2304);
}
inline void unpack_unit(Q6_K, const uint8_t* head, const uint8_t* unit, int64_t r, uint8_t* b) {
  std::memcpy(b + 208, head + 2 * r, 2);
  for (int v = 0; v < 4; ++v) {
    uint8_t lane[4];
    std::memcpy(lane, unit + 64 * v + 4 * r, 4);
    const uint8_t s[4] = {lane[0], lane[2], lane[1], lane[3]};
    std::memcpy(b + 192 + 4 * v, s, 4);
  }
  gather(unit + 256, 128, r, b);
  gather(unit + 2304, 64, r, b + 128);
}

inline void pack_unit(IQ4_XS, const uint8_t* b, int64_t r, uint8_t*, uint8_t* unit) {
  std::memcpy(unit + 2 * r, b, 2);
  uint16_t high, sorted_high = 0;
  uint32_t low, sorted_low = 0;
  std::memcpy(&high, b + 2, 2);
  std::memcpy(&low, b + 4, 4);
  for (int g = 0; g < 8; ++g) {
    const int p = g >> 1, odd = g & 1;
    sorted_high |= static_cast<uint16_t>((high >> (2 * g) & 3) << (2 * p + 8 * odd));
    sorted_low |= (low >> (4 * g) & 15) << (4 * p + 16 * odd);
  }
  std::memcpy(unit + 32 + 2 * r, &sorted_high, 2);
  std::memcpy(unit + 64 + 4 * r, &sorted_low, 4);
  spread(b + 8, 128, r, unit + 128);
}
inline void unpack_unit(IQ4_XS, const uint8_t*, const uint8_t* unit, int64_t r, uint8_t* b) {
  std::memcpy(b, unit + 2 * r, 2);
  uint16_t high = 0, sorted_high;
  uint32_t low = 0, sorted_low;
  std::memcpy(&sorted_high, unit + 32 + 2 * r, 2);
  std::memcpy(&sorted_low, unit + 64 + 4 * r, 4);
  for (int g = 0; g < 8; ++g) {
    const int p = g >> 1, odd = g & 1;
    high |= static_cast<uint16_t>((sorted_high >> (2 * p + 8 * odd) & 3) << (2 * g));
    low |= (sorted_low >> (4 * p + 16 * odd) & 15) << (4 * g);
  }
  std::memcpy(b + 2, &high, 2);
  std::memcpy(b + 4, &low, 4);
  gather(unit + 128, 128, r, b + 8);
}

template <class T>
void pack256(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t n_blocks = n_in / 256;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      pack_unit(T(), rows + (r * n_blocks + b) * T::kFileBytes, r, panel + b * T::kHeadBytes,
                panel + units_offset256<T>(n_in) + b * T::kUnitBytes);
    }
  }
}
template <class T>
void unpack256(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for (int64_t b = 0; b < n_in / 256; ++b) {
    unpack_unit(T(), panel + b * T::kHeadBytes,
                panel + units_offset256<T>(n_in) + b * T::kUnitBytes, row,
                file_row + b * T::kFileBytes);
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
