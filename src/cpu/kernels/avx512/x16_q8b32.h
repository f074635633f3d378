// The x16 layouts of the types whose blocks are 32 values (activations kQ8B32). A panel is
//   scales   per block 16 binary16 (types with a minimum: 16 scales, 16 minima); end padded to 64
//   units    per two blocks (0, 1) the codes of 32 k x 16 rows; an odd last block fills half a unit
// Codes are unsigned: weight = code - kOffset. code(unit, h, j) is vector j of 8 of block h.
#pragma once

#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// Vector j: byte 4r + i is weight k = 4j + i of row r, plus 128.
struct Q8_0 {
  static constexpr int kBits = 8, kOffset = 128;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 1024;
  static __m512i code(const uint8_t* unit, int h, int j) { return load(unit + 512 * h + 64 * j); }
};

// The low nibble belongs to the unit's first block, the high nibble to its second.
struct Q4_0 {
  static constexpr int kBits = 4, kOffset = 8;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 512;
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m512i v = load(unit + 64 * j);
    return h == 0 ? low_nibbles(v) : high_nibbles(v);
  }
};

struct Q4_1 : Q4_0 {
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = true;
};

// After the nibbles one vector per block: its byte 4r + i holds at bit j the fifth bit of k = 4j +
// i.
struct Q5_0 {
  static constexpr int kBits = 5, kOffset = 16;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 640;
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m512i fifth = load(unit + 512 + 64 * h);
    const __m512i shifted = j < 4 ? _mm512_slli_epi16(fifth, static_cast<unsigned>(4 - j) & 15)
                                  : _mm512_srli_epi16(fifth, static_cast<unsigned>(j - 4) & 15);
    return and_or(shifted, _mm512_set1_epi8(16), Q4_0::code(unit, h, j));
  }
};

struct Q5_1 : Q5_0 {
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = true;
};

// iq4nl_values + 128, for a lookup that yields unsigned codes.
inline __m512i iq4nl_codes(__m512i nibbles) {
  const __m128i table =
      _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, char(129), char(141), char(153), char(166),
                    char(181), char(197), char(217), char(241));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

struct IQ4_NL {
  static constexpr int kBits = 4, kOffset = 128;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 512;
  static __m512i code(const uint8_t* unit, int h, int j) {
    return iq4nl_codes(Q4_0::code(unit, h, j));
  }
};

template <class T>
constexpr int64_t kScaleBytes = T::kHasMin ? 64 : 32;  // per block and panel

template <class T>
int64_t units_offset(int64_t n_in) {
  return round_up(n_in / 32 * kScaleBytes<T>, 64);
}
template <class T>
int64_t panel_bytes32(int64_t n_in) {
  return units_offset<T>(n_in) + (n_in / 32 + 1) / 2 * T::kUnitBytes;
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
