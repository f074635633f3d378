// The 256-value types that are seldom met (Q2_K, Q3_K, IQ1 to IQ3, TQ1_0, TQ2_0): a panel keeps the
// file's bytes, the 16 rows' blocks of a super-block one after another. Unpacking decodes 64 values
// of each row to bytes, transposes them to the x16 order and brings all scales to pairs of int16;
// from there on the kernels are those of x16_tile256.h.
#pragma once

#include "cpu/kernels/avx512/x16_q8b256.h"
#include "tensor/codebooks.h"

namespace okibi::cpu {
namespace {
namespace x16 {

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
inline uint32_t read_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
// Eight bytes (words) to 64-bit lanes.
inline __m512i bytes_to_lanes(const uint8_t* p) {
  return _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i words_to_lanes(const uint8_t* p) {
  return _mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// `low` in the lower, `high` in the upper four 64-bit lanes.
inline __m512i halves(uint64_t low, uint64_t high) {
  return _mm512_mask_set1_epi64(_mm512_set1_epi64(static_cast<int64_t>(low)), 0xf0,
                                static_cast<int64_t>(high));
}

// Negates byte j of each 64-bit lane where bit j of the lane's lowest byte is set.
inline __m512i with_signs(__m512i values, __m512i signs) {
  const __m512i first_byte = _mm512_set4_epi32(0x08080808, 0x08080808, 0, 0);
  const __m512i spread = _mm512_shuffle_epi8(signs, first_byte);
  const __mmask64 negative =
      _mm512_test_epi8_mask(spread, _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201ull)));
  return _mm512_mask_sub_epi8(values, negative, _mm512_setzero_si512(), values);
}
// Seven sign bits to eight of even parity (kKSigns as arithmetic).
inline __m512i even_signs(__m512i seven) {
  __m512i parity = _mm512_xor_si512(seven, _mm512_srli_epi64(seven, 4));
  parity = _mm512_xor_si512(parity, _mm512_srli_epi64(parity, 2));
  parity = _mm512_xor_si512(parity, _mm512_srli_epi64(parity, 1));
  parity = _mm512_and_si512(parity, _mm512_set1_epi64(1));
  return _mm512_or_si512(seven, _mm512_slli_epi64(parity, 7));
}
inline __m512i look_up8(const void* table, __m512i index) {
  return _mm512_i64gather_epi64(index, table, 8);
}
inline __m512i look_up4(const void* table, __m512i index) {
  return _mm512_i32gather_epi32(index, table, 4);
}

// Scales of one row on their way to pairs.
struct RowScales {
  int16_t scale[16];
  int16_t min[16];
};

inline void store_scales(__m256i words, int16_t* scale) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(scale), words);
}
// 2s + 1 twice for each of eight scales in 32-bit lanes: a scale of 32 values counts for two
// groups.
inline void odd_pairs(__m256i s, int16_t* scale) {
  const __m256i both = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
  store_scales(_mm256_add_epi16(_mm256_add_epi16(both, both), _mm256_set1_epi16(1)), scale);
}

// 2s + 1 for 16 scales of four bits, two a byte.
inline void odd_nibbles16(const uint8_t* p, int16_t* scale) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i nibbles =
      _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  const __m256i s = _mm256_cvtepu8_epi16(nibbles);
  store_scales(_mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1)), scale);
}

// ---- types: decode(b, t) gives 64 codes; value 64t + c, or with kSplit value 32t + c of either
// half of 128.

// Two bits at 2k of byte 32h + l for value 128h + 32k + l.
inline __m512i two_bits(const uint8_t* q, int k) {
  return _mm512_and_si512(_mm512_srli_epi16(load(q), static_cast<unsigned>(2 * k)),
                          _mm512_set1_epi8(3));
}

struct Q2_K {
  static constexpr int kOffset = 0, kMinPairs = 8;
  static constexpr bool kHasMin = true, kSplit = true;
  static constexpr int64_t kFileBytes = 84, kScaleAt = 80;
  static constexpr float kFactor = 1.0f;
  static __m512i decode(const uint8_t* b, int k) { return two_bits(b + 16, k); }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
    const __m256i words = _mm256_cvtepu8_epi16(bytes);
    store_scales(_mm256_and_si256(words, _mm256_set1_epi16(15)), s->scale);
    store_scales(_mm256_srli_epi16(words, 4), s->min);
  }
};

struct Q3_K {
  static constexpr int kOffset = 4, kMinPairs = 4;
  static constexpr bool kHasMin = false, kSplit = true;
  static constexpr int64_t kFileBytes = 110, kScaleAt = 108;
  static constexpr float kFactor = 1.0f;
  static __m512i decode(const uint8_t* b, int k) {
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    // The upper half of 128 has its bits four higher.
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(mask), _mm256_srli_epi16(mask, 4), 1);
    const __m512i kept = _mm512_slli_epi16(_mm512_srli_epi16(both, static_cast<unsigned>(k)), 2);
    return and_or(kept, _mm512_set1_epi8(4), two_bits(b + 32, k));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    // Byte g: low nibbles of the first eight bytes, then their high ones; two bits at 2 (g / 4) of
    // byte 8 + g % 4 above them.
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + 96));
    const __m128i nibbles =
        _mm_and_si128(_mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
    const __m128i fields = _mm_srlv_epi32(_mm_set1_epi32(static_cast<int>(read_u32(b + 104))),
                                          _mm_setr_epi32(0, 2, 4, 6));
    const __m128i high = _mm_slli_epi16(_mm_and_si128(fields, _mm_set1_epi8(3)), 4);
    const __m128i scale = _mm_sub_epi8(_mm_or_si128(nibbles, high), _mm_set1_epi8(32));
    store_scales(_mm256_cvtepi8_epi16(scale), s->scale);
  }
};

struct TQ2_0 {
  static constexpr int kOffset = 1, kMinPairs = 4;
  static constexpr bool kHasMin = false, kSplit = true;
  static constexpr int64_t kFileBytes = 66, kScaleAt = 64;
  static constexpr float kFactor = 1.0f;
  static __m512i decode(const uint8_t* b, int k) { return two_bits(b, k); }
  static void scales(const uint8_t*, RowScales* s) { store_scales(_mm256_set1_epi16(1), s->scale); }
};

// Trit n of a byte is the number of times 256 goes into 3 * (byte * 3^n mod 256).
inline __m256i trits(__m256i bytes) {
  const __m256i one = _mm256_set1_epi8(1);
  const __m256i past_86 = _mm256_min_epu8(_mm256_subs_epu8(bytes, _mm256_set1_epi8(85)), one);
  const __m256i past_171 =
      _mm256_min_epu8(_mm256_subs_epu8(bytes, _mm256_set1_epi8(char(170))), one);
  return _mm256_add_epi8(past_86, past_171);
}
inline __m256i times_3(__m256i bytes) {
  return _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
}

struct TQ1_0 {
  static constexpr int kOffset = 1, kMinPairs = 4;
  static constexpr bool kHasMin = false, kSplit = false;
  static constexpr int64_t kFileBytes = 54, kScaleAt = 52;
  static constexpr float kFactor = 1.0f;
  static __m512i decode(const uint8_t* b, int t) {
    alignas(64) uint8_t codes[256 + 32];
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    __m256i c = _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 32)));
    __m256i e = _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(read_u32(b + 48))));
    for (int n = 0; n < 5; ++n) {  // later stores overwrite what earlier ones wrote past their end
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * n), trits(a));
      a = times_3(a);
    }
    for (int n = 0; n < 5; ++n) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 160 + 16 * n), trits(c));
      c = times_3(c);
    }
    for (int n = 0; n < 4; ++n) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 240 + 4 * n), trits(e));
      e = times_3(e);
    }
    return load(codes + 64 * t);
  }
  static void scales(const uint8_t*, RowScales* s) { store_scales(_mm256_set1_epi16(1), s->scale); }
};

constexpr int kIqOffset = 64;
inline __m512i iq_codes(__m512i values) {
  return _mm512_add_epi8(values, _mm512_set1_epi8(kIqOffset));
}
// Shifts of the four sign fields of each of two 32-bit words.
inline __m512i sign_fields(uint32_t first, uint32_t second) {
  const __m512i shifts = _mm512_setr_epi64(0, 7, 14, 21, 0, 7, 14, 21);
  return _mm512_and_si512(_mm512_srlv_epi64(halves(first, second), shifts), _mm512_set1_epi64(127));
}

struct Iq {
  static constexpr int kOffset = kIqOffset, kMinPairs = 4;
  static constexpr bool kHasMin = false, kSplit = false;
  static constexpr int64_t kScaleAt = 0;
};

// The low halves of 64-bit lanes, then the high ones.
inline __m512i indices_and_words(__m512i lanes) {
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), lanes);
}

struct IQ2_XXS : Iq {
  static constexpr int64_t kFileBytes = 66;
  static constexpr float kFactor = 0.125f;
  static __m512i decode(const uint8_t* b, int t) {
    const uint8_t* p = b + 2 + 16 * t;
    const uint64_t low = read_u32(p), high = read_u32(p + 8);
    const __m512i index =
        _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<int64_t>(low | high << 32)));
    const __m512i signs = even_signs(sign_fields(read_u32(p + 4), read_u32(p + 12)));
    return iq_codes(with_signs(look_up8(kIq2XxsGrid, index), signs));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m256i words = _mm512_extracti64x4_epi64(indices_and_words(load(b + 2)), 1);
    odd_pairs(_mm256_srli_epi32(words, 28), s->scale);
  }
};

struct IQ2_XS : Iq {
  static constexpr int64_t kFileBytes = 74;
  static constexpr float kFactor = 0.125f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i words = words_to_lanes(b + 2 + 16 * t);
    const __m512i grid = look_up8(kIq2XsGrid, _mm512_and_si512(words, _mm512_set1_epi64(511)));
    return iq_codes(with_signs(grid, even_signs(_mm512_srli_epi64(words, 9))));
  }
  static void scales(const uint8_t* b, RowScales* s) { odd_nibbles16(b + 66, s->scale); }
};

struct IQ2_S : Iq {
  static constexpr int64_t kFileBytes = 82;
  static constexpr float kFactor = 0.125f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i shifts = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i fields = _mm512_srlv_epi64(_mm512_set1_epi64(read_u16(b + 66 + 2 * t)), shifts);
    const __m512i high = _mm512_slli_epi64(_mm512_and_si512(fields, _mm512_set1_epi64(3)), 8);
    const __m512i index = _mm512_or_si512(bytes_to_lanes(b + 2 + 8 * t), high);
    return iq_codes(with_signs(look_up8(kIq2SGrid, index), bytes_to_lanes(b + 34 + 8 * t)));
  }
  static void scales(const uint8_t* b, RowScales* s) { odd_nibbles16(b + 74, s->scale); }
};

struct IQ3_XXS : Iq {
  static constexpr int64_t kFileBytes = 98;
  static constexpr float kFactor = 0.25f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i index =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 2 + 16 * t)));
    const uint8_t* w = b + 66 + 8 * t;
    const __m512i signs = even_signs(sign_fields(read_u32(w), read_u32(w + 4)));
    return iq_codes(with_signs(look_up4(kIq3XxsGrid, index), signs));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 66));
    odd_pairs(_mm256_srli_epi32(words, 28), s->scale);
  }
};

struct IQ3_S : Iq {
  static constexpr int64_t kFileBytes = 110;
  static constexpr float kFactor = 1.0f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i low =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 2 + 16 * t)));
    const __m512i index =
        _mm512_mask_add_epi32(low, read_u16(b + 66 + 2 * t), low, _mm512_set1_epi32(256));
    return iq_codes(with_signs(look_up4(kIq3SGrid, index), bytes_to_lanes(b + 74 + 8 * t)));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m256i fields = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(read_u32(b + 106))),
                                             _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    odd_pairs(_mm256_and_si256(fields, _mm256_set1_epi32(15)), s->scale);
  }
};

// 8 * grid - 1 where bit 0 of the lane's `negative` is set, else + 1.
inline __m512i iq1_codes(__m512i index, __m512i negative) {
  const __m512i grid = look_up8(kIq1Grid, index);
  const __m512i eightfold =
      _mm512_and_si512(_mm512_slli_epi16(grid, 3), _mm512_set1_epi8(char(0xf8)));
  const __mmask8 minus = _mm512_test_epi64_mask(negative, _mm512_set1_epi64(1));
  const __m512i delta = _mm512_mask_mov_epi64(_mm512_set1_epi8(kIqOffset + 1), minus,
                                              _mm512_set1_epi8(kIqOffset - 1));
  return _mm512_add_epi8(eightfold, delta);
}

struct IQ1_S : Iq {
  static constexpr int64_t kFileBytes = 50;
  static constexpr float kFactor = 0.125f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i h = halves(read_u16(b + 34 + 4 * t), read_u16(b + 36 + 4 * t));
    const __m512i shifts = _mm512_setr_epi64(0, 3, 6, 9, 0, 3, 6, 9);
    const __m512i field = _mm512_and_si512(_mm512_srlv_epi64(h, shifts), _mm512_set1_epi64(7));
    const __m512i index =
        _mm512_or_si512(bytes_to_lanes(b + 2 + 8 * t), _mm512_slli_epi64(field, 8));
    return iq1_codes(index, _mm512_srli_epi64(h, 15));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m256i words =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 34)));
    odd_pairs(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7)), s->scale);
  }
};

struct IQ1_M : Iq {
  static constexpr int64_t kFileBytes = 56;
  static constexpr float kFactor = 0.125f;
  static __m512i decode(const uint8_t* b, int t) {
    const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i fields = _mm512_srlv_epi64(_mm512_set1_epi64(read_u32(b + 32 + 4 * t)), shifts);
    const __m512i high = _mm512_and_si512(fields, _mm512_set1_epi64(7));
    const __m512i index = _mm512_or_si512(bytes_to_lanes(b + 8 * t), _mm512_slli_epi64(high, 8));
    return iq1_codes(index, _mm512_srli_epi64(fields, 3));
  }
  static void scales(const uint8_t* b, RowScales* s) {
    const __m256i four =
        _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + 48)));
    const __m256i words = _mm256_permutexvar_epi16(
        _mm256_setr_epi16(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), four);
    const __m256i fields = _mm256_and_si256(
        _mm256_srlv_epi16(words, _mm256_set1_epi64x(0x0009'0006'0003'0000)), _mm256_set1_epi16(7));
    store_scales(_mm256_add_epi16(_mm256_add_epi16(fields, fields), _mm256_set1_epi16(1)),
                 s->scale);
  }
  // The binary16 factor is spread over the top nibbles of the four scale words.
  static uint16_t factor(const uint8_t* b) {
    return static_cast<uint16_t>(b[49] >> 4 | (b[51] & 0xf0) | (b[53] & 0xf0) << 4 |
                                 (b[55] & 0xf0) << 8);
  }
};

// ---- what the walk asks of a type

template <class F>
struct Generic {
  static constexpr int kGroups = 16, kOffset = F::kOffset, kMinPairs = F::kMinPairs;
  static constexpr bool kHasMin = F::kHasMin, kDirect = false;
  static constexpr int64_t kFileBytes = F::kFileBytes, kUnitBytes = 16 * F::kFileBytes,
                           kHeadBytes = 0;

  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i* mins) {
    for (int t = 0; t < 4; ++t) {
      __m512i v[16];
      for (int r = 0; r < 16; ++r) v[r] = F::decode(unit + r * kFileBytes, t);
      transpose16(v);
      for (int c = 0; c < 16; ++c) {
        const int x = F::kSplit ? (c < 8 ? 8 * t + c : 24 + 8 * t + c) : 16 * t + c;
        store(codes + stride * x, v[c]);
      }
    }
    alignas(64) RowScales rows[16];
    for (int r = 0; r < 16; ++r) F::scales(unit + r * kFileBytes, &rows[r]);
    __m512i v[16];
    for (int r = 0; r < 16; ++r) v[r] = load(&rows[r]);
    transpose16(v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) scales[i] = v[i];
#pragma GCC unroll 8
    for (int i = 0; i < kMinPairs; ++i) mins[i] = v[8 + i];
  }
  static __m512 d(const uint8_t*, const uint8_t* unit) {
    alignas(32) uint16_t bits[16];
    for (int r = 0; r < 16; ++r) bits[r] = factor(unit + r * kFileBytes, F());
    return _mm512_mul_ps(load_f16(reinterpret_cast<const uint8_t*>(bits)),
                         _mm512_set1_ps(F::kFactor));
  }
  static __m512 m(const uint8_t* unit) {
    alignas(32) uint16_t bits[16];
    for (int r = 0; r < 16; ++r) bits[r] = read_u16(unit + r * kFileBytes + F::kScaleAt + 2);
    return load_f16(reinterpret_cast<const uint8_t*>(bits));
  }

 private:
  template <class G>
  static uint16_t factor(const uint8_t* b, G) {
    return read_u16(b + F::kScaleAt);
  }
  static uint16_t factor(const uint8_t* b, IQ1_M) {
    return IQ1_M::factor(b);
  }
};

template <class T>
void pack_blocks(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  const int64_t n_blocks = n_in / 256;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      std::memcpy(panel + (16 * b + r) * T::kFileBytes, rows + (r * n_blocks + b) * T::kFileBytes,
                  static_cast<size_t>(T::kFileBytes));
    }
  }
}
template <class T>
void unpack_blocks(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for (int64_t b = 0; b < n_in / 256; ++b) {
    std::memcpy(file_row + b * T::kFileBytes, panel + (16 * b + row) * T::kFileBytes,
                static_cast<size_t>(T::kFileBytes));
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
