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

inline void copy8(const void* from, uint8_t* to) {
  std::memcpy(to, from, 8);
}
inline void copy4(const void* from, uint8_t* to) {
  std::memcpy(to, from, 4);
}
inline __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m512i bytes_to_words(__m256i bytes) {
  return _mm512_cvtepu8_epi16(bytes);
}

// ---- signs and indices of a whole super-block of one row

// Bit j of sign byte n belongs to value 8n + j.
struct SignBytes {
  alignas(32) uint64_t mask[4];
  void set(__m256i bytes) { _mm256_store_si256(reinterpret_cast<__m256i*>(mask), bytes); }
  // Seven bits each, the eighth makes the number of set bits even.
  void set_even(__m256i seven) {
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, _mm256_set1_epi8(15)));
    const __m256i high = _mm256_shuffle_epi8(
        odd, _mm256_and_si256(_mm256_srli_epi16(seven, 4), _mm256_set1_epi8(15)));
    set(_mm256_xor_si256(seven, _mm256_xor_si256(low, high)));
  }
  // Four fields of seven bits in each of eight words.
  void set_fields(__m256i words) {
    __m256i seven = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
    seven = field(words, 1, 0x7f00, seven);
    seven = field(words, 2, 0x7f0000, seven);
    set_even(field(words, 3, 0x7f000000, seven));
  }
  static __m256i field(__m256i words, int up, int mask, __m256i others) {
    return _mm256_ternarylogic_epi32(_mm256_slli_epi32(words, static_cast<unsigned>(up)),
                                     _mm256_set1_epi32(mask), others, 0xEA);
  }
};

inline void signed_codes(const uint8_t* values, const SignBytes& signs, __m512i* v) {
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    const __m512i magnitude = load(values + 64 * t);
    v[t] =
        iq_codes(_mm512_mask_sub_epi8(magnitude, signs.mask[t], _mm512_setzero_si512(), magnitude));
  }
}

// Copies the rows of `grid` that 32 (64) indices name.
inline void copy_rows8(const void* grid, const uint16_t* index, uint8_t* values) {
  const uint8_t* rows = static_cast<const uint8_t*>(grid);
#pragma GCC unroll 32
  for (int n = 0; n < 32; ++n) copy8(rows + 8 * index[n], values + 8 * n);
}
inline void copy_rows4(const void* grid, const uint16_t* index, uint8_t* values) {
  const uint8_t* rows = static_cast<const uint8_t*>(grid);
#pragma GCC unroll 64
  for (int n = 0; n < 64; ++n) copy4(rows + 4 * index[n], values + 4 * n);
}
struct Indices {
  alignas(64) uint16_t index[64];
};

// ---- types. look_up fills 256 bytes with what the code book says, codes finishes them.

template <class F>
struct ByRow {  // nothing to look up
  static constexpr bool kLooksUp = false;
  static void codes(const uint8_t* b, const uint8_t*, __m512i* v) {
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) v[t] = F::decode(b, t);
  }
};

template <>
struct ByRow<IQ2_XXS> {
  static constexpr bool kLooksUp = true;
  static void look_up(const uint8_t* b, uint8_t* values) {
#pragma GCC unroll 32
    for (int n = 0; n < 32; ++n) copy8(kIq2XxsGrid[b[2 + 8 * (n / 4) + n % 4]], values + 8 * n);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    SignBytes signs;
    signs.set_fields(_mm512_cvtepi64_epi32(_mm512_srli_epi64(load(b + 2), 32)));
    signed_codes(values, signs, v);
  }
};

template <>
struct ByRow<IQ2_XS> {
  static constexpr bool kLooksUp = true;
  static void look_up(const uint8_t* b, uint8_t* values) {
    Indices at;
    store(at.index, _mm512_and_si512(load(b + 2), _mm512_set1_epi16(511)));
    copy_rows8(kIq2XsGrid, at.index, values);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    SignBytes signs;
    signs.set_even(_mm512_cvtepi16_epi8(_mm512_srli_epi16(load(b + 2), 9)));
    signed_codes(values, signs, v);
  }
};

template <>
struct ByRow<IQ2_S> {
  static constexpr bool kLooksUp = true;
  static void look_up(const uint8_t* b, uint8_t* values) {
    Indices at;
    // Word n: byte n / 4 of the eight, of which bits 2 (n % 4) and the next count.
    const __m512i bytes =
        _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + 66)));
    const __m512i words = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 14));
    const __m512i fields = _mm512_or_si512(words, _mm512_slli_epi64(words, 28));
    const __m512i high = _mm512_and_si512(_mm512_slli_epi16(fields, 8), _mm512_set1_epi16(0x300));
    store(at.index, _mm512_or_si512(bytes_to_words(load256(b + 2)), high));
    copy_rows8(kIq2SGrid, at.index, values);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    SignBytes signs;
    signs.set(load256(b + 34));
    signed_codes(values, signs, v);
  }
};

template <>
struct ByRow<IQ3_XXS> {
  static constexpr bool kLooksUp = true;
  static void look_up(const uint8_t* b, uint8_t* values) {
#pragma GCC unroll 64
    for (int n = 0; n < 64; ++n) copy4(kIq3XxsGrid[b[2 + n]], values + 4 * n);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    SignBytes signs;
    signs.set_fields(load256(b + 66));
    signed_codes(values, signs, v);
  }
};

template <>
struct ByRow<IQ3_S> {
  static constexpr bool kLooksUp = true;
  static void look_up(const uint8_t* b, uint8_t* values) {
    Indices at;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i low = bytes_to_words(load256(b + 2 + 32 * h));
      const __m512i high = _mm512_maskz_set1_epi16(read_u32(b + 66 + 4 * h), 256);
      store(at.index + 32 * h, _mm512_or_si512(low, high));
    }
    copy_rows4(kIq3SGrid, at.index, values);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    SignBytes signs;
    signs.set(load256(b + 74));
    signed_codes(values, signs, v);
  }
};

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
struct ByRow<IQ1_S> {
  static constexpr bool kLooksUp = true;
  // Word n / 4 of eight in word n.
  static __m512i fields(const uint8_t* b) {
    const __m512i words = words_to_lanes(b + 34);
    const __m512i both = _mm512_or_si512(words, _mm512_slli_epi64(words, 16));
    return _mm512_or_si512(both, _mm512_slli_epi64(both, 32));
  }
  static void look_up(const uint8_t* b, uint8_t* values) {
    Indices at;
    const __m512i high = _mm512_srlv_epi16(fields(b), _mm512_set1_epi64(0x0009'0006'0003'0000));
    store(at.index,
          _mm512_or_si512(bytes_to_words(load256(b + 2)),
                          _mm512_slli_epi16(_mm512_and_si512(high, _mm512_set1_epi16(7)), 8)));
    copy_rows8(kIq1Grid, at.index, values);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    shifted_codes(values, _mm512_movepi16_mask(fields(b)), v);
  }
};

template <>
struct ByRow<IQ1_M> {
  static constexpr bool kLooksUp = true;
  // Nibble n in word n.
  static __m512i fields(const uint8_t* b) {
    const __m512i bytes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 32)));
    return _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)),
                            _mm512_set1_epi16(15));
  }
  static void look_up(const uint8_t* b, uint8_t* values) {
    Indices at;
    const __m512i high = _mm512_and_si512(fields(b), _mm512_set1_epi16(7));
    store(at.index, _mm512_or_si512(bytes_to_words(load256(b)), _mm512_slli_epi16(high, 8)));
    copy_rows8(kIq1Grid, at.index, values);
  }
  static void codes(const uint8_t* b, const uint8_t* values, __m512i* v) {
    shifted_codes(values, _mm512_test_epi16_mask(fields(b), _mm512_set1_epi16(8)), v);
  }
};

template <>
struct ByRow<TQ1_0> {
  static constexpr bool kLooksUp = true;
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
  static void codes(const uint8_t*, const uint8_t* values, __m512i* v) {
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
[[gnu::always_inline]] inline void add_row_block(const uint8_t* block, const uint8_t* values,
                                                 const RowsAt& a, int o, LaneSums<kRows>* sums) {
  __m512i v[4];
  RowScales s;
  ByRow<F>::codes(block, values, v);
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
[[gnu::always_inline]] inline void add_blocks(const uint8_t* unit, const RowsAt& a, __m512* acc) {
  alignas(64) uint8_t values[ByRow<F>::kLooksUp ? 16 * 256 : 64];
  LaneSums<kRows> sums;
  if constexpr (ByRow<F>::kLooksUp) {
    for (int o = 0; o < 16; ++o) ByRow<F>::look_up(unit + o * F::kFileBytes, values + 256 * o);
  }
  for (int o = 0; o < 16; ++o) {
    add_row_block<F, kRows>(unit + o * F::kFileBytes, values + (ByRow<F>::kLooksUp ? 256 * o : 0),
                            a, o, &sums);
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
void gemv_rows256(const ProductArgs& args, int64_t row) {
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
      add_blocks<F, kRows>(unit, a, acc);
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
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    if (n == 1) gemv_rows256<F, 1>(args, row);
    if (n == 2) gemv_rows256<F, 2>(args, row);
    if (n == 3) gemv_rows256<F, 3>(args, row);
    if (n == 4) gemv_rows256<F, 4>(args, row);
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
