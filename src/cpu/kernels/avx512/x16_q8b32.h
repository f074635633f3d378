// The x16 layouts of the types whose blocks are 32 values (activations kQ8B32). A panel is
//   scales   per block of the file 16 scales, then 16 minima where there are any; end padded to 64
//   units    per two blocks (0, 1) the codes of 32 k x 16 rows; an odd last block fills half a unit
// Codes are unsigned: weight = code - kOffset. code(unit, h, j) is vector j of 8 of block h.
// kConvert: the scale can be so large that the shortcut by kMagic would overflow.
// kScales: weight scales per block, one or, for 16 values each, two.
#pragma once

#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// Vector j: byte 4r + i is weight k = 4j + i of row r, plus 128.
struct Q8_0 {
  static constexpr int kBits = 8, kOffset = 128, kFileValues = 32, kScales = 1;
  static constexpr bool kHasMin = false, kConvert = false;
  static constexpr int64_t kUnitBytes = 1024, kScaleBytes = 32;
  static __m512 scale(const uint8_t* p) { return load_f16(p); }
  static __m512i code(const uint8_t* unit, int h, int j) { return load(unit + 512 * h + 64 * j); }
};

// The low nibble belongs to the unit's first block, the high nibble to its second.
struct Q4_0 {
  static constexpr int kBits = 4, kOffset = 8, kFileValues = 32, kScales = 1;
  static constexpr bool kHasMin = false, kConvert = false;
  static constexpr int64_t kUnitBytes = 512, kScaleBytes = 32;
  static __m512 scale(const uint8_t* p) { return load_f16(p); }
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m512i v = load(unit + 64 * j);
    return h == 0 ? low_nibbles(v) : high_nibbles(v);
  }
};

struct Q4_1 : Q4_0 {
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kScaleBytes = 64;
};

// After the nibbles one vector per block: its byte 4r + i holds at bit j the fifth bit of k = 4j +
// i.
struct Q5_0 : Q4_0 {
  static constexpr int kBits = 5, kOffset = 16;
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
  static constexpr int64_t kScaleBytes = 64;
};

// iq4nl_values + 128, for a lookup that yields unsigned codes.
inline __m512i iq4nl_codes(__m512i nibbles) {
  const __m128i table =
      _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, char(129), char(141), char(153), char(166),
                    char(181), char(197), char(217), char(241));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

struct IQ4_NL : Q4_0 {
  static constexpr int kOffset = 128;
  static __m512i code(const uint8_t* unit, int h, int j) {
    return iq4nl_codes(Q4_0::code(unit, h, j));
  }
};

// Scales are E8M0 bytes, read as half their value since the table is doubled; table + 12.
struct MXFP4 : Q4_0 {
  static constexpr int kOffset = 12;
  static constexpr bool kConvert = true;
  static constexpr int64_t kScaleBytes = 16;
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), Q4_0::code(unit, h, j));
  }
  static __m512 scale(const uint8_t* p) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, subnormal));
  }
};

// Scales are unsigned E4M3 bytes, 16 rows' for the first 16 values, then for the others; read as
// half their value like those of MXFP4. The format's NaN counts as zero.
struct NVFP4 : MXFP4 {
  static constexpr int kScales = 2;
  static constexpr bool kConvert = false;
  static constexpr int64_t kScaleBytes = 32;
  static __m512 scale(const uint8_t* p) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i code = _mm512_and_si512(bytes, _mm512_set1_epi32(0x7f));
    const __m512i normal =
        _mm512_add_epi32(_mm512_slli_epi32(code, 20), _mm512_set1_epi32(119 << 23));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(0x1p-10f));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(code, _mm512_set1_epi32(8));
    const __mmask16 is_number = _mm512_cmpneq_epi32_mask(code, _mm512_set1_epi32(0x7f));
    return _mm512_maskz_mov_ps(is_number,
                               _mm512_mask_mov_ps(_mm512_castsi512_ps(normal), is_small, small));
  }
};

// Four vectors a unit: bits 2s of vector t are vector 4s + t of its 16.
struct Q2_0 : Q4_0 {
  static constexpr int kBits = 2, kOffset = 1, kFileValues = 64;
  static constexpr int64_t kUnitBytes = 256;
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m512i v = load(unit + 64 * (j & 3));
    const unsigned shift = static_cast<unsigned>(4 * h + 2 * (j >> 2));
    return _mm512_and_si512(_mm512_srli_epi16(v, shift), _mm512_set1_epi8(3));
  }
};

// Two vectors a unit: bit s of vector t is vector 2s + t of its 16. A set bit is code 2, weight +1.
struct Q1_0 : Q4_0 {
  static constexpr int kBits = 1, kOffset = 1, kFileValues = 128;
  static constexpr int64_t kUnitBytes = 128;
  static __m512i code(const uint8_t* unit, int h, int j) {
    const __m512i v = load(unit + 64 * (j & 1));
    const int bit = 4 * h + (j >> 1);
    const __m512i shifted = bit == 0 ? _mm512_slli_epi16(v, 1)
                                     : _mm512_srli_epi16(v, static_cast<unsigned>(bit - 1) & 15);
    return _mm512_and_si512(shifted, _mm512_set1_epi8(2));
  }
};

// The scales of block `block` of 32.
template <class T>
const uint8_t* scales_at(const uint8_t* panel, int64_t block) {
  return panel + block / (T::kFileValues / 32) * T::kScaleBytes;
}
template <class T>
int64_t units_offset(int64_t n_in) {
  return round_up(n_in / T::kFileValues * T::kScaleBytes, 64);
}
template <class T>
int64_t panel_bytes32(int64_t n_in) {
  return units_offset<T>(n_in) + round_up((n_in / 32 + 1) / 2 * T::kUnitBytes, 64);
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
