// IQ2_XXS, IQ2_XS, IQ3_XXS and IQ3_S in an x16 layout of their own: the file's bits, ordered so
// that 64 code-book look-ups of 16 rows are one vector. Needs VBMI and GFNI, which every processor
// with AMX has. A look-up gives the values' ranks among the few that occur, packed into bytes; one
// bit matrix puts the signs beside two ranks at once, and a table of 64 bytes turns both to a code.
//
// Group g is 32 k. A lane of 32 bits is one row; a code vector holds four codes of each:
//   kGroups 8:   vector j, byte i: k = 8i + j           (one scale)
//   kGroups 16:  vector 4h + j:    k = 16h + j + (0, 8, 4, 12)[i]   (a scale for each h)
// gemv takes them in this order from activations ordered alike; gemm wants them in file order.
#pragma once

#include "cpu/kernels/avx512/x16_q8b256.h"
#include "tensor/codebooks.h"

namespace okibi::cpu {
namespace {
namespace books {
using namespace x16;

constexpr int kIqOffset = 64;

// ---- constant tables

// Codes by the six bits that a look-up of 64 bytes heeds: rank from bit `rank_at` on, sign at
// `sign_at`, the others free.
struct ByteTable {
  alignas(64) uint8_t codes[64];
};
template <int kRankBits>
constexpr ByteTable codes_by_rank(const uint8_t (&values)[1 << kRankBits], int rank_at,
                                  int sign_at) {
  ByteTable t = {};
  for (int i = 0; i < 64; ++i) {
    const int value = values[(i >> rank_at) & ((1 << kRankBits) - 1)];
    t.codes[i] = static_cast<uint8_t>(kIqOffset + ((i >> sign_at & 1) != 0 ? -value : value));
  }
  return t;
}
constexpr uint8_t kIq2Values[4] = {8, 25, 43, 0};
constexpr uint8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr uint8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr ByteTable kIq2Even = codes_by_rank<2>(kIq2Values, 0, 4);
constexpr ByteTable kIq2Odd = codes_by_rank<2>(kIq2Values, 2, 5);
constexpr ByteTable kIq3XxsCodes = codes_by_rank<3>(kIq3XxsValues, 0, 3);
constexpr ByteTable kIq3SCodes = codes_by_rank<3>(kIq3SValues, 0, 3);
constexpr ByteTable even_places() {
  ByteTable t = {};
  for (int i = 0; i < 64; ++i) t.codes[i] = static_cast<uint8_t>(2 * i);
  return t;
}
constexpr ByteTable kEvenPlaces = even_places();

// ---- tables, made once per call

// Ranks per index as two bytes: IQ3 a value in each nibble, IQ2 four values in each byte.
template <int kEntries>
struct Books {
  static constexpr int kVectors = kEntries / 64;
  __m512i first[kVectors], second[kVectors];
  __m512i value[2];  // code by rank and sign
  __m512i signs[4];  // bit matrices
};

// rows[i] makes bit i of the result: the parity of the bits that it names.
struct BitRows {
  uint8_t rows[8];
};
inline __m512i bit_matrix(BitRows m) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= static_cast<uint64_t>(m.rows[i]) << (8 * (7 - i));
  return _mm512_set1_epi64(static_cast<int64_t>(bits));
}

// The even bytes of both, then the odd ones.
inline void divide_bytes(__m512i v0, __m512i v1, __m512i* even, __m512i* odd) {
  const __m512i index = load(kEvenPlaces.codes);
  *even = _mm512_permutex2var_epi8(v0, index, v1);
  *odd = _mm512_permutex2var_epi8(v0, _mm512_add_epi8(index, _mm512_set1_epi8(1)), v1);
}

// Grids of four values whose rank is the three bits from `shift` on.
template <int kEntries>
inline void read_grid4(const uint8_t (*grid)[4], int shift, Books<kEntries>* out) {
  const auto pairs = [&](int entry) {  // 16 entries to 32 bytes
    const __m512i rank = _mm512_and_si512(
        _mm512_srli_epi16(load(grid[entry]), static_cast<unsigned>(shift)), _mm512_set1_epi8(7));
    return _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(rank, _mm512_set1_epi16(0x1001)));
  };
  for (int n = 0; n < kEntries / 64; ++n) {
    __m512i v[2];
    for (int h = 0; h < 2; ++h) {
      v[h] = _mm512_inserti64x4(_mm512_castsi256_si512(pairs(64 * n + 32 * h)),
                                pairs(64 * n + 32 * h + 16), 1);
    }
    divide_bytes(v[0], v[1], &out->first[n], &out->second[n]);
  }
}

// Grids of eight values 8, 25, 43.
template <int kEntries>
inline void read_grid8(const uint8_t (*grid)[8], Books<kEntries>* out) {
  const auto fours = [&](int entry) {  // 8 entries to 16 bytes
    const __m512i rank =
        _mm512_and_si512(_mm512_srli_epi16(load(grid[entry]), 4), _mm512_set1_epi8(3));
    const __m512i pairs = _mm512_maddubs_epi16(rank, _mm512_set1_epi16(0x0401));
    return _mm512_cvtepi32_epi8(_mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001)));
  };
  for (int n = 0; n < kEntries / 64; ++n) {
    alignas(64) uint8_t bytes[128];
    for (int i = 0; i < 8; ++i) {
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes + 16 * i), fours(64 * n + 8 * i));
    }
    divide_bytes(load(bytes), load(bytes + 64), &out->first[n], &out->second[n]);
  }
}

// Of the eight signs of a byte, numbers 2n and 2n + 1 go to bits 4 and 5 (IQ2), or to 3 and 7
// (IQ3). `last` says which bits of the byte are the eighth sign: all but it where only seven are
// kept and their number is even.
constexpr uint8_t kEighthKept = 0x80, kEighthEven = 0x7f;
inline void make_signs2(uint8_t last, __m512i* signs) {
  for (int n = 0; n < 4; ++n) {
    const uint8_t odd = n == 3 ? last : static_cast<uint8_t>(2 << (2 * n));
    signs[n] = bit_matrix({{0, 0, 0, 0, static_cast<uint8_t>(1 << (2 * n)), odd, 0, 0}});
  }
}
inline void make_signs3(uint8_t last, __m512i* signs) {
  for (int n = 0; n < 4; ++n) {
    const uint8_t odd = n == 3 ? last : static_cast<uint8_t>(2 << (2 * n));
    signs[n] = bit_matrix({{0, 0, 0, static_cast<uint8_t>(1 << (2 * n)), 0, 0, 0, odd}});
  }
}
template <int kEntries>
inline void make_values2(Books<kEntries>* b) {
  b->value[0] = load(kIq2Even.codes);
  b->value[1] = load(kIq2Odd.codes);
}

// ---- look-ups

// A look-up in 64 bytes heeds six bits of the index: one is made in every table, those above choose
// among the results. Of four tables the later overwrite by mask; eight are two times four, since a
// longer chain waits too long.
struct Upper {
  __mmask64 sixth, seventh, both, eighth;
};
[[gnu::always_inline]] inline Upper upper_bits(__m512i index, __mmask64 eighth = 0) {
  const __mmask64 sixth = _mm512_movepi8_mask(_mm512_slli_epi16(index, 1));
  const __mmask64 seventh = _mm512_movepi8_mask(index);
  return {sixth, seventh, _kand_mask64(sixth, seventh), eighth};
}
template <int kVectors>
[[gnu::always_inline]] inline __m512i look_up(const __m512i* table, __m512i index, Upper upper) {
  if constexpr (kVectors == 8) {
    return _mm512_mask_blend_epi8(upper.eighth, look_up<4>(table, index, upper),
                                  look_up<4>(table + 4, index, upper));
  }
  __m512i v = _mm512_permutexvar_epi8(index, table[0]);
  v = _mm512_mask_permutexvar_epi8(v, upper.sixth, index, table[1]);
  v = _mm512_mask_permutexvar_epi8(v, upper.seventh, index, table[2]);
  return _mm512_mask_permutexvar_epi8(v, upper.both, index, table[3]);
}
[[gnu::always_inline]] inline __m512i by_matrix(__m512i bytes, __m512i matrix) {
  return _mm512_gf2p8affine_epi64_epi8(bytes, matrix, 0);
}

// Four vectors of which each holds two ranks and their signs per byte, in the lower six bits: of
// values 2n and 2n + 1 of the index.
template <int kEntries>
[[gnu::always_inline]] inline void merge2(const Books<kEntries>& b, __m512i index, Upper upper,
                                          __m512i signs, __m512i* merged) {
  const __m512i first = look_up<kEntries / 64>(b.first, index, upper),
                second = look_up<kEntries / 64>(b.second, index, upper);
  const __m512i ranks[4] = {first, _mm512_srli_epi16(first, 4), second,
                            _mm512_srli_epi16(second, 4)};
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    merged[n] = select_bits(_mm512_set1_epi8(15), ranks[n], by_matrix(signs, b.signs[n]));
  }
}
// The four values of an index; `half`: which four of the signs.
template <int kEntries>
[[gnu::always_inline]] inline void codes3(const Books<kEntries>& b, __m512i index, Upper upper,
                                          __m512i signs, int half, __m512i* codes) {
  const __m512i ranks[2] = {look_up<kEntries / 64>(b.first, index, upper),
                            look_up<kEntries / 64>(b.second, index, upper)};
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) {
    const __m512i both = _mm512_or_si512(ranks[n], by_matrix(signs, b.signs[2 * half + n]));
    codes[2 * n] = _mm512_permutexvar_epi8(both, b.value[0]);
    codes[2 * n + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(both, 4), b.value[0]);
  }
}

// Four fields of seven bits in each 32-bit word to bytes; the eighth bit is the next field's.
[[gnu::always_inline]] inline __m512i sign_fields(__m512i words) {
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), words);
}
// 2s + 1 of the scale in the upper four bits.
[[gnu::always_inline]] inline __m512i top_scale(__m512i words) {
  return _mm512_or_si512(_mm512_srli_epi32(words, 27), _mm512_set1_epi32(1));
}
// 2s + 1 of nibble n.
[[gnu::always_inline]] inline __m512i nibble_scale(__m512i words, int n) {
  const __m512i twice = n == 0 ? _mm512_slli_epi32(words, 1)
                               : _mm512_srli_epi32(words, static_cast<unsigned>(4 * n - 1));
  return _mm512_ternarylogic_epi32(twice, _mm512_set1_epi32(1), _mm512_set1_epi32(31), 0xA8);
}

// ---- types: codes(books, unit, g) and scale(unit, n). A unit begins with 16 binary16 factors.

struct Iq {
  static constexpr int kOffset = kIqOffset, kMinPairs = 4;
  static constexpr int64_t kHeadBytes = 0;
  static constexpr bool kDirect = false, kHasMin = false;
};
// Place of group g.
template <int kBytes>
[[gnu::always_inline]] inline const uint8_t* group_at(const uint8_t* unit, int g) {
  return unit + 32 + kBytes * g;
}

// Group: 64 indices, 16 words of signs and scale as in the file.
struct IQ2_XXS : Iq {
  using Book = Books<256>;
  static constexpr int kGroups = 8;
  static constexpr int64_t kUnitBytes = 1056, kFileBytes = 66;
  static constexpr float kFactor = 0.125f;
  static void make(Book* b) {
    read_grid8(kIq2XxsGrid, b);
    make_values2(b);
    make_signs2(kEighthEven, b->signs);
  }
  [[gnu::always_inline]] static void codes(const Book& b, const uint8_t* unit, int g, __m512i* c) {
    const uint8_t* p = group_at<128>(unit, g);
    const __m512i index = load(p);
    __m512i merged[4];
    merge2(b, index, upper_bits(index), sign_fields(load(p + 64)), merged);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) c[j] = _mm512_permutexvar_epi8(merged[j >> 1], b.value[j & 1]);
  }
  [[gnu::always_inline]] static __m512i scale(const uint8_t* unit, int g) {
    return top_scale(load(group_at<128>(unit, g) + 64));
  }
};

// Group: the indices' low bytes, and for each eight of them 56 bits of signs and their ninth bits.
// Of four rows the indices of the first 16 k stand together, then those of the second.
struct IQ2_XS : Iq {
  using Book = Books<512>;
  static constexpr int kGroups = 16;
  static constexpr int64_t kUnitBytes = 1184, kFileBytes = 74, kScalesAt = 1056;
  static constexpr float kFactor = 0.125f;
  static void make(Book* b) {
    read_grid8(kIq2XsGrid, b);
    make_values2(b);
    make_signs2(kEighthEven, b->signs);
  }
  [[gnu::always_inline]] static void codes(const Book& b, const uint8_t* unit, int g, __m512i* c) {
    const uint8_t* p = group_at<128>(unit, g);
    const __m512i index = load(p), fields = load(p + 64);
    const __m512i sevens = _mm512_set1_epi64(0x312a231c150e0700);
    const __m512i signs = _mm512_multishift_epi64_epi8(sevens, fields);
    // Bit 56 + n to the top of byte n.
    const __m512i tops = _mm512_set1_epi64(0x3837363534333231);
    const __mmask64 top = _mm512_movepi8_mask(_mm512_multishift_epi64_epi8(tops, fields));
    __m512i merged[4];
    merge2(b, index, upper_bits(index, top), signs, merged);
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      const __m512i half[2] = {_mm512_unpacklo_epi16(merged[n], merged[2 + n]),
                               _mm512_unpackhi_epi16(merged[n], merged[2 + n])};
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        c[4 * h + 2 * n] = _mm512_permutexvar_epi8(half[h], b.value[0]);
        c[4 * h + 2 * n + 1] = _mm512_permutexvar_epi8(half[h], b.value[1]);
      }
    }
  }
  [[gnu::always_inline]] static __m512i scale(const uint8_t* unit, int n) {
    return nibble_scale(load(unit + kScalesAt + 64 * (n >> 3)), n & 7);
  }
};

// Group: 64 even indices, 64 odd ones, 16 words of signs and scale as in the file.
struct IQ3_XXS : Iq {
  using Book = Books<256>;
  static constexpr int kGroups = 8;
  static constexpr int64_t kUnitBytes = 1568, kFileBytes = 98;
  static constexpr float kFactor = 0.25f;
  static void make(Book* b) {
    read_grid4(kIq3XxsGrid, 3, b);
    b->value[0] = load(kIq3XxsCodes.codes);
    make_signs3(kEighthEven, b->signs);
  }
  [[gnu::always_inline]] static void codes(const Book& b, const uint8_t* unit, int g, __m512i* c) {
    const uint8_t* p = group_at<192>(unit, g);
    const __m512i signs = sign_fields(load(p + 128));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i index = load(p + 64 * h);
      codes3(b, index, upper_bits(index), signs, h, c + 4 * h);
    }
  }
  [[gnu::always_inline]] static __m512i scale(const uint8_t* unit, int g) {
    return top_scale(load(group_at<192>(unit, g) + 128));
  }
};

// Group: 64 even indices, 64 odd ones, signs, the ninth bits of the even and of the odd indices.
// After the groups a vector of scales.
struct IQ3_S : Iq {
  using Book = Books<512>;
  static constexpr int kGroups = 8;
  static constexpr int64_t kUnitBytes = 1760, kFileBytes = 110, kScalesAt = 1696;
  static constexpr float kFactor = 1.0f;
  static void make(Book* b) {
    read_grid4(kIq3SGrid, 1, b);
    b->value[0] = load(kIq3SCodes.codes);
    make_signs3(kEighthKept, b->signs);
  }
  [[gnu::always_inline]] static void codes(const Book& b, const uint8_t* unit, int g, __m512i* c) {
    const uint8_t* p = group_at<208>(unit, g);
    const __m512i signs = load(p + 128);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i index = load(p + 64 * h);
      uint64_t top;
      std::memcpy(&top, p + 192 + 8 * h, 8);
      codes3(b, index, upper_bits(index, top), signs, h, c + 4 * h);
    }
  }
  [[gnu::always_inline]] static __m512i scale(const uint8_t* unit, int g) {
    return nibble_scale(load(unit + kScalesAt), g);
  }
};

// ---- what the walks of gemm ask of a type

// Vector i of the result: byte i of the lanes of v[0], v[1], v[2], v[3].
inline void transpose_bytes(const __m512i* v, __m512i* out) {
  const __m512i even = lanes16(0x00ff), low = _mm512_set1_epi32(0xffff);
  const auto pair = [&](__m512i a, __m512i b, __m512i* p) {  // bytes 0 and 2, 1 and 3
    p[0] = select_bits(even, a, _mm512_slli_epi16(b, 8));
    p[1] = select_bits(even, _mm512_srli_epi16(a, 8), b);
  };
  __m512i front[2], back[2];
  pair(v[0], v[1], front);
  pair(v[2], v[3], back);
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) {
    out[n] = select_bits(low, front[n], _mm512_slli_epi32(back[n], 16));
    out[2 + n] = select_bits(low, _mm512_srli_epi32(front[n], 16), back[n]);
  }
}

template <class F>
struct Unpacked : F {
  static __m512 d(const uint8_t*, const uint8_t* unit) {
    return _mm512_mul_ps(load_f16(unit), _mm512_set1_ps(F::kFactor));
  }
  static __m512 m(const uint8_t*) { return _mm512_setzero_ps(); }
  static void unpack(const uint8_t* unit, uint8_t* codes, int64_t stride, __m512i* scales,
                     __m512i*) {
    // Not measured apart from the rest; happens once per super-block of 16 rows and 512
    // activations.
    typename F::Book book;
    F::make(&book);
    for (int g = 0; g < 8; ++g) {
      __m512i c[8], sorted[4];
      F::codes(book, unit, g, c);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        transpose_bytes(c + 4 * h, sorted);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const int x = F::kGroups == 8 ? 2 * i + h : 4 * h + (i >> 1) + 2 * (i & 1);
          store(codes + stride * (8 * g + x), sorted[i]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < F::kGroups / 2; ++p) {
      scales[p] =
          _mm512_or_si512(F::scale(unit, 2 * p), _mm512_slli_epi32(F::scale(unit, 2 * p + 1), 16));
    }
  }
};

}  // namespace books
}  // namespace
}  // namespace okibi::cpu
