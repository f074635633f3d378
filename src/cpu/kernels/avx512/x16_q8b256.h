// The x16 layouts of the types whose super-blocks are 256 values (activations kQ8B256). A panel is
//   head    Q6_K only: per super-block 16 binary16 scales; end padded to 64
//   units   per super-block the scales and codes of 256 k x 16 rows
// Codes are unsigned: weight = code - kOffset. code(unit, x) is vector x of 64, k = 4x .. 4x + 3.
// kDirect: code() and scales() stand on their own, without unpack().
// Sub-scales come as pairs of int16 in each 32-bit lane: pair p holds groups 2p (low) and 2p + 1.
#pragma once

#include "cpu/kernels/avx512/x16_q8b32.h"

namespace okibi::cpu {
namespace {
namespace x16 {

inline __m512i lanes16(int32_t half) {
  return _mm512_set1_epi32(half << 16 | half);
}

// Scales and minima of 6 bits, 12 bytes per row as in the file, laid out for the unpacking: three
// vectors; of each 16-bit half (low: even groups, high: odd groups) bits 0-5 and 6-11 hold
//   vector 0: sc of the half's groups 0 and 1,  vector 1: sc 2 and 3,  vector 2: mn 0 and 1
// and bits 12-15 of the three the 12 bits of mn 2 and 3.
inline void read_scales_k(const uint8_t* p, __m512i* scales, __m512i* mins) {
  const __m512i v0 = load(p), v1 = load(p + 64), v2 = load(p + 128), six = lanes16(63);
  scales[0] = _mm512_and_si512(v0, six);
  scales[1] = _mm512_and_si512(_mm512_srli_epi32(v0, 6), six);
  scales[2] = _mm512_and_si512(v1, six);
  scales[3] = _mm512_and_si512(_mm512_srli_epi32(v1, 6), six);
  mins[0] = _mm512_and_si512(v2, six);
  mins[1] = _mm512_and_si512(_mm512_srli_epi32(v2, 6), six);
  __m512i rest = _mm512_and_si512(_mm512_srli_epi32(v0, 12), lanes16(0x00f));
  rest = and_or(_mm512_srli_epi32(v1, 8), lanes16(0x0f0), rest);
  rest = and_or(_mm512_srli_epi32(v2, 4), lanes16(0xf00), rest);
  mins[2] = _mm512_and_si512(rest, six);
  mins[3] = _mm512_and_si512(_mm512_srli_epi32(rest, 6), six);
}

// What unpacking a unit gives: the 64 vectors of codes, `stride` bytes apart, and the pairs.
template <class T>
[[gnu::always_inline]] inline void unpack_unit_codes(const uint8_t* unit, uint8_t* codes,
                                                     int64_t stride, __m512i* scales,
                                                     __m512i* mins) {
#pragma GCC unroll 64
  for (int x = 0; x < 64; ++x) store(codes + stride * x, T::code(unit, x));
  T::scales(unit, scales, mins);
}

// Unit: 16 d, 16 m, 192 bytes of scales, 32 vectors of nibbles (vector 8p + j: k = 4j of group 2p
// in the low, of group 2p + 1 in the high nibbles).
struct Q4_K {
  static constexpr int kGroups = 8, kOffset = 0, kMinPairs = 4;
  static constexpr bool kDirect = true;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kUnitBytes = 2304, kHeadBytes = 0, kFileBytes = 144;
  static __m512i code(const uint8_t* unit, int x) {
    const __m512i v = load(unit + 256 + 64 * ((x >> 4) * 8 + (x & 7)));
    return (x & 8) == 0 ? low_nibbles(v) : high_nibbles(v);
  }
  static __m512 d(const uint8_t*, const uint8_t* unit) { return load_f16(unit); }
  static __m512 m(const uint8_t* unit) { return load_f16(unit + 32); }
  static void scales(const uint8_t* unit, __m512i* scales, __m512i* mins) {
    read_scales_k(unit + 64, scales, mins);
  }
  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i* mins) {
    unpack_unit_codes<Q4_K>(unit, codes, stride, scales, mins);
  }
};

// As Q4_K, then 8 vectors of fifth bits: byte 4r + i of vector j holds at bit g that of k = 4j + i
// of group g.
struct Q5_K : Q4_K {
  static constexpr int64_t kUnitBytes = 2816, kFileBytes = 176;
  static __m512i code(const uint8_t* unit, int x) {
    const __m512i fifth = load(unit + 2304 + 64 * (x & 7));
    const int g = x >> 3;
    const __m512i shifted = g < 4 ? _mm512_slli_epi16(fifth, static_cast<unsigned>(4 - g) & 15)
                                  : _mm512_srli_epi16(fifth, static_cast<unsigned>(g - 4) & 15);
    return and_or(shifted, _mm512_set1_epi8(16), Q4_K::code(unit, x));
  }
  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i* mins) {
    unpack_unit_codes<Q5_K>(unit, codes, stride, scales, mins);
  }
};

// Unit: 4 vectors of int8 scales (bytes of a lane: groups 4v, 4v + 2, 4v + 1, 4v + 3), 32 vectors
// of low nibbles (16h + 8c + j: k = 4j of the runs of 32 at 128h + 32c and, high, 64 further), 16
// vectors of upper bits (8h + j: bits 2n for the run 128h + 32n).
struct Q6_K {
  static constexpr int kGroups = 16, kOffset = 32, kMinPairs = 4;
  static constexpr bool kDirect = true;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 3328, kHeadBytes = 32, kFileBytes = 210;
  static __m512i code(const uint8_t* unit, int x) {
    const int h = x >> 5, run = (x >> 3) & 3, j = x & 7;
    const __m512i v = load(unit + 256 + 64 * (16 * h + 8 * (run & 1) + j));
    const __m512i low = run < 2 ? low_nibbles(v) : high_nibbles(v);
    const __m512i upper = load(unit + 2304 + 64 * (8 * h + j));
    const __m512i shifted = run == 0   ? _mm512_slli_epi16(upper, 4)
                            : run == 1 ? _mm512_slli_epi16(upper, 2)
                            : run == 2 ? upper
                                       : _mm512_srli_epi16(upper, 2);
    return and_or(shifted, _mm512_set1_epi8(0x30), low);
  }
  static __m512 d(const uint8_t* head, const uint8_t*) { return load_f16(head); }
  static __m512 m(const uint8_t*) { return _mm512_setzero_ps(); }
  static void scales(const uint8_t* unit, __m512i* scales, __m512i*) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i bytes = load(unit + 64 * v);
      scales[2 * v] = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
      scales[2 * v + 1] = _mm512_srai_epi16(bytes, 8);
    }
  }
  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i* mins) {
    unpack_unit_codes<Q6_K>(unit, codes, stride, scales, mins);
  }
};

// Unit: 16 d, 16 x upper two bits of the scales (low byte: even groups), a vector of their low
// nibbles (low half: even groups), 32 vectors of nibbles (4g + c: k = 4c of group g in the low, k =
// 16 + 4c in the high nibbles).
struct IQ4_XS {
  static constexpr int kGroups = 8, kOffset = 128, kMinPairs = 4;
  static constexpr bool kDirect = true;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kUnitBytes = 2176, kHeadBytes = 0, kFileBytes = 136;
  static __m512i code(const uint8_t* unit, int x) {
    const __m512i v = load(unit + 128 + 64 * ((x >> 3) * 4 + (x & 3)));
    return iq4nl_codes((x & 4) == 0 ? low_nibbles(v) : high_nibbles(v));
  }
  static __m512 d(const uint8_t*, const uint8_t* unit) { return load_f16(unit); }
  static __m512 m(const uint8_t*) { return _mm512_setzero_ps(); }
  static void scales(const uint8_t* unit, __m512i* scales, __m512i*) {
    const __m512i low = load(unit + 64);
    const __m512i packed =
        _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(unit + 32)));
    const __m512i high = _mm512_or_si512(_mm512_and_si512(packed, _mm512_set1_epi32(0xff)),
                                         _mm512_slli_epi32(_mm512_srli_epi32(packed, 8), 16));
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m512i n = _mm512_and_si512(_mm512_srli_epi32(low, 4 * p), lanes16(15));
      const __m512i up = _mm512_and_si512(_mm512_srli_epi32(high, 2 * p), lanes16(3));
      scales[p] = _mm512_sub_epi16(_mm512_or_si512(n, _mm512_slli_epi32(up, 4)), lanes16(32));
    }
  }
  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i* mins) {
    unpack_unit_codes<IQ4_XS>(unit, codes, stride, scales, mins);
  }
};

// The scale of one group of a pair in 32-bit lanes.
inline __m512i scale_of(__m512i pair, int odd) {
  return _mm512_srai_epi32(odd ? pair : _mm512_slli_epi32(pair, 16), 16);
}

template <class T>
int64_t units_offset256(int64_t n_in) {
  return round_up(n_in / 256 * T::kHeadBytes, 64);
}
template <class T>
int64_t panel_bytes256(int64_t n_in) {
  return units_offset256<T>(n_in) + n_in / 256 * T::kUnitBytes;
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
