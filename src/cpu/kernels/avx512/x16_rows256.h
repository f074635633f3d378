// gemv of the types of x16_generic256.h, row by row: a row's 64 codes meet 64 activations as they
// stand, products are multiplied by the scales of their groups, and the 16 rows' lanes are added
// once per super-block. All of that is exact int32, so the order changes no bit. Rows of code books
// are copied together first, for all 16 rows: a gather is slower than plain loads and stores, and a
// vector load right behind narrow stores would wait for them.
#pragma once

#include "cpu/kernels/avx512/x16_generic256.h"
#include "cpu/kernels/avx512/x16_tile256.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// The copied bytes pass through a general register: compilers like to gather neighbouring copies in
// vectors, which takes three operations each on one port.
inline void copy8(const void* from, uint8_t* to) {
  uint64_t v;
  std::memcpy(&v, from, 8);
  asm("" : "+r"(v));
  std::memcpy(to, &v, 8);
}
inline __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m512i bytes_to_words(__m256i bytes) {
  return _mm512_cvtepu8_epi16(bytes);
}

// ---- look-ups in registers. A code book's rows fit 16 bits when each value is replaced by its
// rank among the few that occur, and 32 such words are looked up at once, 64 rows of the book at a
// time.

// Of 64 * kPairs rows; the bits of `index` above those count for nothing.
template <int kPairs>
[[gnu::always_inline]] inline __m512i look_up_words(const uint16_t* book, __m512i index) {
  if constexpr (kPairs == 1) {
    return _mm512_permutex2var_epi16(load(book), index, load(book + 32));
  } else {
    const __mmask32 upper =
        _mm512_test_epi16_mask(index, _mm512_set1_epi16(static_cast<int16_t>(32 * kPairs)));
    return _mm512_mask_blend_epi16(upper, look_up_words<kPairs / 2>(book, index),
                                   look_up_words<kPairs / 2>(book + 32 * kPairs, index));
  }
}

// Rows of eight values 8, 25, 43 as ranks of two bits, at 0, 4, 2, 6 and 8, 12, 10, 14.
inline void make_book8(const uint8_t (*grid)[8], int n_rows, uint16_t* book) {
  for (int i = 0; i < n_rows; i += 8) {
    const __m512i rank = _mm512_and_si512(_mm512_srli_epi16(load(grid[i]), 4), _mm512_set1_epi8(3));
    const __m512i pairs = _mm512_maddubs_epi16(rank, _mm512_set1_epi32(0x40041001));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi64(0x0100'0100'0001'0001));
    const __m512i row = _mm512_or_si512(fours, _mm512_srli_epi64(fours, 32));
    _mm_store_si128(reinterpret_cast<__m128i*>(book + i), _mm512_cvtepi64_epi16(row));
  }
}
// Rows of four values of three bits at `shift`, a nibble each.
inline void make_book4(const uint8_t (*grid)[4], int n_rows, int shift, uint16_t* book) {
  for (int i = 0; i < n_rows; i += 16) {
    const __m512i rank = _mm512_and_si512(
        _mm512_srli_epi16(load(grid[i]), static_cast<unsigned>(shift)), _mm512_set1_epi8(7));
    const __m512i pairs = _mm512_maddubs_epi16(rank, _mm512_set1_epi16(0x1001));
    const __m512i row = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x01000001));
    _mm256_store_si256(reinterpret_cast<__m256i*>(book + i), _mm512_cvtepi32_epi16(row));
  }
}

// Values plus kIqOffset by rank, in every 128-bit lane.
[[gnu::always_inline]] inline __m512i values_by_rank(int64_t low, int64_t high) {
  return iq_codes(_mm512_broadcast_i32x4(_mm_set_epi64x(high, low)));
}

// 32 words of make_book8 to the 256 values they stand for: two halvings, which take the words of
// each lane apart; the permutation ahead makes up for it.
[[gnu::always_inline]] inline void expand8(__m512i words, __m512i values, __m512i* v) {
  words = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), words);
  const __m512i mask = _mm512_set1_epi8(0x33);
  const __m512i even = _mm512_and_si512(words, mask);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(words, 2), mask);
  const __m512i half[2] = {_mm512_unpacklo_epi8(even, odd), _mm512_unpackhi_epi8(even, odd)};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    // Bits 2, 3 and 7 are clear in every byte, as the shuffle wants it.
    const __m512i low = _mm512_shuffle_epi8(values, half[i]);
    const __m512i high = _mm512_shuffle_epi8(values, _mm512_srli_epi16(half[i], 4));
    v[2 * i] = _mm512_unpacklo_epi8(low, high);
    v[2 * i + 1] = _mm512_unpackhi_epi8(low, high);
  }
}
// 32 words of make_book4 to 128 values.
[[gnu::always_inline]] inline void expand4(__m512i words, __m512i values, __m512i* v) {
  words = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), words);
  const __m512i low = _mm512_shuffle_epi8(values, words);
  const __m512i high = _mm512_shuffle_epi8(values, _mm512_srli_epi16(words, 4));
  v[0] = _mm512_unpacklo_epi8(low, high);
  v[1] = _mm512_unpackhi_epi8(low, high);
}

// ---- signs. Bit j of sign byte n belongs to value 8n + j.

// v holds kIqOffset plus magnitudes.
[[gnu::always_inline]] inline void apply_signs(__m256i bytes, __m512i* v) {
  alignas(32) uint64_t negative[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(negative), bytes);
  // Masks come from memory: through general registers each would cost two operations more.
  asm("" : "+m"(negative));
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    v[t] = _mm512_mask_sub_epi8(v[t], negative[t], _mm512_set1_epi8(char(2 * kIqOffset)), v[t]);
  }
}
// Seven bits a byte; the eighth makes the number of set bits even.
inline __m256i even_bytes(__m256i seven) {
  const __m256i odd = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, mask));
  const __m256i high =
      _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(seven, 4), mask));
  return _mm256_xor_si256(seven, _mm256_xor_si256(low, high));
}
// Four fields of seven bits in each of eight words.
inline __m256i even_fields(__m256i words) {
  const auto field = [words](unsigned up, int mask, __m256i others) {
    return _mm256_ternarylogic_epi32(_mm256_slli_epi32(words, up), _mm256_set1_epi32(mask), others,
                                     0xEA);
  };
  const __m256i first = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
  return even_bytes(field(3, 0x7f000000, field(2, 0x7f0000, field(1, 0x7f00, first))));
}

// ---- types. codes() gives the 256 codes of a row. What it needs is made by make_book() once per
// call and by look_up() for all rows of a super-block ahead.

template <class F>
struct ByRow {
  static constexpr int kBookRows = 0;
  static constexpr bool kLooksUp = false;
  static void codes(const uint8_t* b, const uint16_t*, const uint8_t*, __m512i* v) {
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) v[t] = F::decode(b, t);
  }
};

template <int kRows>
struct WithBook {
  static constexpr int kBookRows = kRows;
  static constexpr bool kLooksUp = false;
};

constexpr int64_t kIq2Values = 0x2b1908;
template <int kRows>
[[gnu::always_inline]] inline void iq2_codes(const uint16_t* book, __m512i index, __m256i signs,
                                             __m512i* v) {
  expand8(look_up_words<kRows / 64>(book, index), values_by_rank(kIq2Values, 0), v);
  apply_signs(signs, v);
}

template <>
struct ByRow<IQ2_XXS> : WithBook<256> {
  static void make_book(uint16_t* book) { make_book8(kIq2XxsGrid, 256, book); }
  static void codes(const uint8_t* b, const uint16_t* book, const uint8_t*, __m512i* v) {
    const __m512i both = load(b + 2);  // in turn four indices and a word of signs
    const __m512i apart = indices_and_words(both);
    const __m512i index = bytes_to_words(_mm512_castsi512_si256(apart));
    const __m256i words = _mm512_extracti64x4_epi64(apart, 1);
    iq2_codes<256>(book, index, even_fields(words), v);
  }
};

template <>
struct ByRow<IQ2_XS> : WithBook<512> {
  static void make_book(uint16_t* book) { make_book8(kIq2XsGrid, 512, book); }
  static void codes(const uint8_t* b, const uint16_t* book, const uint8_t*, __m512i* v) {
    const __m512i words = load(b + 2);
    const __m256i seven = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 9));
    iq2_codes<512>(book, words, even_bytes(seven), v);
  }
};

template <>
struct ByRow<IQ2_S> : WithBook<1024> {
  static void make_book(uint16_t* book) { make_book8(kIq2SGrid, 1024, book); }
  static void codes(const uint8_t* b, const uint16_t* book, const uint8_t*, __m512i* v) {
    // Word n: bits 2 (n % 4) and the next of byte n / 4.
    const __m512i bytes = bytes_to_lanes(b + 66);
    const __m512i words = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 14));
    const __m512i fields = _mm512_or_si512(words, _mm512_slli_epi64(words, 28));
    const __m512i index =
        _mm512_or_si512(bytes_to_words(load256(b + 2)), _mm512_slli_epi16(fields, 8));
    iq2_codes<1024>(book, index, load256(b + 34), v);
  }
};

template <>
struct ByRow<IQ3_XXS> : WithBook<256> {
  static void make_book(uint16_t* book) { make_book4(kIq3XxsGrid, 256, 3, book); }
  static void codes(const uint8_t* b, const uint16_t* book, const uint8_t*, __m512i* v) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i index = bytes_to_words(load256(b + 2 + 32 * h));
      expand4(look_up_words<4>(book, index), values_by_rank(0x3e342c241c140c04, 0), v + 2 * h);
    }
    apply_signs(even_fields(load256(b + 66)), v);
  }
};

template <>
struct ByRow<IQ3_S> : WithBook<512> {
  static void make_book(uint16_t* book) { make_book4(kIq3SGrid, 512, 1, book); }
  static void codes(const uint8_t* b, const uint16_t* book, const uint8_t*, __m512i* v) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i low = bytes_to_words(load256(b + 2 + 32 * h));
      const __m512i high = _mm512_maskz_set1_epi16(read_u32(b + 66 + 4 * h), 256);
      expand4(look_up_words<8>(book, _mm512_or_si512(low, high)),
              values_by_rank(0x0f0d0b0907050301, 0), v + 2 * h);
    }
    apply_signs(load256(b + 74), v);
  }
};

struct LooksUp {
  static constexpr int kBookRows = 0;
  static constexpr bool kLooksUp = true;
};

// Copies the 32 rows of the IQ1 book that `index` names: 2048 are too many for look-ups in
// registers.
inline void copy_rows8(__m512i index, uint8_t* values) {
  alignas(64) uint16_t at[32];
  store(at, index);
#pragma GCC unroll 16
  for (int n = 0; n < 32; ++n) copy8(kIq1Grid[at[n]], values + 8 * n);
}

// 8 * grid - 1 for the eight values of index n where bit n of `negative` is set, else + 1.
inline void shifted_codes(const uint8_t* values, uint32_t negative, __m512i* v) {
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    const __m512i eightfold =
        _mm512_and_si512(_mm512_slli_epi16(load(values + 64 * t), 3), _mm512_set1_epi8(char(0xf8)));
    const __m512i delta = _mm512_mask_mov_epi64(_mm512_set1_epi8(kIqOffset + 1),
                                                static_cast<__mmask8>(negative >> (8 * t)),
                                                _mm512_set1_epi8(kIqOffset - 1));
    v[t] = _mm512_add_epi8(eightfold, delta);
  }
}

template <>
struct ByRow<IQ1_S> : LooksUp {
  // Word n / 4 of eight in word n.
  static __m512i fields(const uint8_t* b) {
    const __m512i words = words_to_lanes(b + 34);
    const __m512i both = _mm512_or_si512(words, _mm512_slli_epi64(words, 16));
    return _mm512_or_si512(both, _mm512_slli_epi64(both, 32));
  }
  static void look_up(const uint8_t* b, uint8_t* values) {
    const __m512i high = _mm512_srlv_epi16(fields(b), _mm512_set1_epi64(0x0009'0006'0003'0000));
    copy_rows8(_mm512_or_si512(bytes_to_words(load256(b + 2)),
                               _mm512_slli_epi16(_mm512_and_si512(high, _mm512_set1_epi16(7)), 8)),
               values);
  }
  static void codes(const uint8_t* b, const uint16_t*, const uint8_t* values, __m512i* v) {
    shifted_codes(values, _mm512_movepi16_mask(fields(b)), v);
  }
};

template <>
struct ByRow<IQ1_M> : LooksUp {
  // Nibble n in word n.
  static __m512i fields(const uint8_t* b) {
    const __m512i bytes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 32)));
    return _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)),
                            _mm512_set1_epi16(15));
  }
  static void look_up(const uint8_t* b, uint8_t* values) {
    const __m512i high = _mm512_and_si512(fields(b), _mm512_set1_epi16(7));
    copy_rows8(_mm512_or_si512(bytes_to_words(load256(b)), _mm512_slli_epi16(high, 8)), values);
  }
  static void codes(const uint8_t* b, const uint16_t*, const uint8_t* values, __m512i* v) {
    shifted_codes(values, _mm512_test_epi16_mask(fields(b), _mm512_set1_epi16(8)), v);
  }
};

template <>
struct ByRow<TQ1_0> : LooksUp {
  // The three runs of bytes (32, 16 and 4) side by side; later stores overwrite what earlier ones
  // wrote past their end.
  static void look_up(const uint8_t* b, uint8_t* values) {
    __m512i bytes = _mm512_maskz_loadu_epi8((uint64_t{1} << 52) - 1, b);
    const __m512i one = _mm512_set1_epi8(1);
    __m512i trit[5];
#pragma GCC unroll 5
    for (int n = 0; n < 5; ++n) {
      const __m512i past_86 = _mm512_min_epu8(_mm512_subs_epu8(bytes, _mm512_set1_epi8(85)), one);
      const __m512i past_171 =
          _mm512_min_epu8(_mm512_subs_epu8(bytes, _mm512_set1_epi8(char(170))), one);
      trit[n] = _mm512_add_epi8(past_86, past_171);
      bytes = _mm512_add_epi8(bytes, _mm512_add_epi8(bytes, bytes));
    }
#pragma GCC unroll 5
    for (int n = 0; n < 5; ++n) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + 32 * n),
                          _mm512_castsi512_si256(trit[n]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 160 + 16 * n),
                       _mm512_extracti32x4_epi32(trit[n], 2));
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const uint32_t four =
          static_cast<uint32_t>(_mm_cvtsi128_si32(_mm512_extracti32x4_epi32(trit[n], 3)));
      std::memcpy(values + 240 + 4 * n, &four, 4);
    }
  }
  static void codes(const uint8_t*, const uint16_t*, const uint8_t* values, __m512i* v) {
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) v[t] = load(values + 64 * t);
  }
};

// ---- the walk

// Lane r of the result: the sum of the lanes of v[r].
inline __m512i sums_of_lanes(const int32_t (*v)[16]) {
  __m512i four[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = load(v[4 * i]), b = load(v[4 * i + 1]);
    const __m512i c = load(v[4 * i + 2]), d = load(v[4 * i + 3]);
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
  const auto add_pairs = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  };
  return add_pairs(add_pairs(four[0], four[1]), add_pairs(four[2], four[3]));
}

// Scales of the groups that the 64 codes of vector t belong to, one in each 128-bit lane.
template <class F>
[[gnu::always_inline]] inline __m512i group_scales(__m256i scales, int t) {
  const int64_t first = F::kSplit ? 2 * t : 4 * t, second = F::kSplit ? 8 + 2 * t : 4 * t + 2;
  const int64_t all = 0x0001'0001'0001'0001;
  const __m512i group =
      _mm512_setr_epi64(first * all, first * all, (first + 1) * all, (first + 1) * all,
                        second * all, second * all, (second + 1) * all, (second + 1) * all);
  return _mm512_permutexvar_epi16(group, _mm512_castsi256_si512(scales));
}
template <class F>
[[gnu::always_inline]] inline __m512i activations64(const int8_t* q, int t) {
  if constexpr (!F::kSplit) return load(q + 64 * t);
  return _mm512_inserti64x4(_mm512_castsi256_si512(load256(q + 32 * t)), load256(q + 128 + 32 * t),
                            1);
}

// Activations of kRows rows from a super-block on.
struct RowsAt {
  const int8_t* q;
  int64_t q_stride;
  const float* d;
  int64_t d_stride;
  const int16_t* sums16;
  int64_t sums16_stride;
};

template <int kRows>
struct LaneSums {
  alignas(64) int32_t total[kRows][16][16];
  int32_t minima[kRows][16][16];
};

// Adds nothing up across lanes yet. Two products of a code (at most 128) and an activation fit
// 16 bits, so the pairs of a group meet its scale in the multiplication that widens them.
template <class F, int kRows>
[[gnu::always_inline]] inline void add_row_block(const uint8_t* block, const uint16_t* book,
                                                 const uint8_t* values, const RowsAt& a, int o,
                                                 LaneSums<kRows>* sums) {
  __m512i v[4];
  RowScales s;
  ByRow<F>::codes(block, book, values, v);
  F::scales(block, &s);
  const __m256i scales = load256(s.scale);
  __m512i total[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    total[r] = _mm512_setzero_si512();
    const __m256i by16 = load256(a.sums16 + r * a.sums16_stride);
    if constexpr (F::kOffset != 0) {
      const __m256i offsets = _mm256_mullo_epi16(scales, _mm256_set1_epi16(-F::kOffset));
      total[r] = _mm512_zextsi256_si512(_mm256_madd_epi16(offsets, by16));
    }
    if constexpr (F::kHasMin) {
      store(sums->minima[r][o], _mm512_zextsi256_si512(_mm256_madd_epi16(load256(s.min), by16)));
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    const __m512i scale = group_scales<F>(scales, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i products =
          _mm512_maddubs_epi16(v[t], activations64<F>(a.q + r * a.q_stride, t));
      total[r] = _mm512_dpwssd_epi32(total[r], products, scale);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) store(sums->total[r][o], total[r]);
}

template <class F, int kRows>
[[gnu::always_inline]] inline void add_blocks(const uint8_t* unit, const uint16_t* book,
                                              const RowsAt& a, __m512* acc) {
  alignas(64) uint8_t values[ByRow<F>::kLooksUp ? 16 * 256 : 64];
  LaneSums<kRows> sums;
  if constexpr (ByRow<F>::kLooksUp) {
    for (int o = 0; o < 16; ++o) ByRow<F>::look_up(unit + o * F::kFileBytes, values + 256 * o);
  }
  for (int o = 0; o < 16; ++o) {
    add_row_block<F, kRows>(unit + o * F::kFileBytes, book,
                            values + (ByRow<F>::kLooksUp ? 256 * o : 0), a, o, &sums);
  }
  const __m512 d = Generic<F>::d(nullptr, unit);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float* da = a.d + r * a.d_stride;
    acc[r] = add_scaled(acc[r], d, da, sums_of_lanes(sums.total[r]));
    if constexpr (F::kHasMin) {
      acc[r] = subtract_scaled(acc[r], Generic<F>::m(unit), da, sums_of_lanes(sums.minima[r]));
    }
  }
}

// How far gemv asks for its panel ahead of use.
constexpr int64_t kRowsPrefetchBytes = 4096;

template <class F, int kRows>
void gemv_rows256(const ProductArgs& args, const uint16_t* book, int64_t row) {
  constexpr int64_t kUnitBytes = Generic<F>::kUnitBytes;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* unit = args.w.data + panel * args.w.panel_bytes;
    RowsAt a = {args.a.q + row * args.a.q_stride,           args.a.q_stride,
                args.a.d + row * args.a.d_stride,           args.a.d_stride,
                args.a.sums16 + row * args.a.sums16_stride, args.a.sums16_stride};
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
      for (int64_t i = 0; i < kUnitBytes; i += 64) prefetch(unit + kRowsPrefetchBytes + i);
      add_blocks<F, kRows>(unit, book, a, acc);
      unit += kUnitBytes;
      a.q += 256;
      a.d += 1;
      a.sums16 += 16;
    }
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

template <class F>
void gemv_by_row(const ProductArgs& args) {
  alignas(64) uint16_t book[ByRow<F>::kBookRows + 1];
  if constexpr (ByRow<F>::kBookRows != 0) ByRow<F>::make_book(book);
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    if (n == 1) gemv_rows256<F, 1>(args, book, row);
    if (n == 2) gemv_rows256<F, 2>(args, book, row);
    if (n == 3) gemv_rows256<F, 3>(args, book, row);
    if (n == 4) gemv_rows256<F, 4>(args, book, row);
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
