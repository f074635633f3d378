// gemm with the 256-value types by AMX. The integer scale of a group is multiplied into the codes,
// as two int8 digits: code * scale = high * 2^kShift + low. Tiles then add up a whole super-block
// exactly, 64 k per instruction, and the float part runs once per 256 values.
//
// A set is one tile of up to 32 rows by one panel. C of both digits stands in tile registers 0-3,
// the rows in 4 and 5, the digits of the weights in 6 and 7: four loads feed four products. While
// the products of one set run, AVX-512 brings the set before to float, a quarter behind each 64 k;
// the last quarter waits until the next set but one, so that nothing waits for a tile to be stored.
#pragma once

#include "cpu/kernels/amx/tile_walk.h"
#include "cpu/kernels/avx512/x16_q8b256.h"

namespace okibi::cpu {
namespace {
namespace amx_tile {
using namespace x16;

// A super-block of two panels. Vector x of a digit of panel p is digits[p][digit] + 64 * x; c holds
// the sums of two sets: per digit 32 rows of 16 outputs.
struct DigitChunk {
  alignas(64) uint8_t digits[2][2][64 * 64];
  int32_t mins[2][8][16];  // pairs
  float d[2][16], m[2][16];
  int32_t c[2][2][kTileHeight][16];
};
using DigitStep = TileStep<DigitChunk>;

// Parts of a record of ActivationTiles.
constexpr int64_t kScalesAt = 256 * kTileHeight;
template <class T>
constexpr int64_t kSumsAt = (T::kMinPairs == 4 ? 260 : 276) * kTileHeight;

// ---- digits

// A scale of a pair in both halves of its lane.
inline __m512i scale_halves(__m512i pair, int odd) {
  const __m512i even_half = _mm512_set1_epi32(0xffff);
  return odd ? select_bits(even_half, _mm512_srli_epi32(pair, 16), pair)
             : select_bits(even_half, pair, _mm512_slli_epi32(pair, 16));
}

// Scales below 64 and codes below 32: the digits of the scale times the code, 7 * 31 at most, never
// leave their byte, so one 16-bit multiplication makes two of them.
template <class T>
struct ScaleDigits {
  static constexpr int kShift = 3;
  static constexpr bool kUnsigned = true;
  __m512i high, low;
  explicit ScaleDigits(__m512i scale)
      : high(_mm512_srli_epi16(scale, 3)), low(_mm512_and_si512(scale, lanes16(7))) {}
  void split(__m512i codes, __m512i* h, __m512i* l) const {
    *h = _mm512_mullo_epi16(codes, high);
    *l = _mm512_mullo_epi16(codes, low);
  }
};

// Any int8 scale: the 16-bit products of even and odd codes are cut at bit 6. |code| < 128 and
// |scale| <= 32, or |code| <= 32, keep the upper digit in a byte.
template <class T>
struct ProductDigits {
  static constexpr int kShift = 6;
  static constexpr bool kUnsigned = false;
  __m512i even, odd, offset;
  explicit ProductDigits(__m512i scale)
      : even(_mm512_and_si512(scale, lanes16(0xff))),
        odd(_mm512_slli_epi16(scale, 8)),
        offset(_mm512_mullo_epi16(scale, lanes16(T::kOffset))) {}
  void split(__m512i codes, __m512i* h, __m512i* l) const {
    const __m512i even_byte = lanes16(0xff);
    const __m512i p0 = _mm512_sub_epi16(_mm512_maddubs_epi16(codes, even), offset);
    const __m512i p1 = _mm512_sub_epi16(_mm512_maddubs_epi16(codes, odd), offset);
    *h = select_bits(even_byte, _mm512_srai_epi16(p0, 6), _mm512_slli_epi16(p1, 2));
    *l = _mm512_and_si512(select_bits(even_byte, p0, _mm512_slli_epi16(p1, 8)),
                          _mm512_set1_epi8(63));
  }
};

template <class T>
struct DigitsOf {
  using Type = ProductDigits<T>;
};
template <>
struct DigitsOf<Q4_K> {
  using Type = ScaleDigits<Q4_K>;
};
template <>
struct DigitsOf<Q5_K> {
  using Type = ScaleDigits<Q5_K>;
};

// Group g from `code(x)`, the vectors of codes.
template <class T, class Code>
[[gnu::always_inline]] inline void split_group(int g, __m512i pair, const Code& code, uint8_t* high,
                                               uint8_t* low) {
  constexpr int kVectors = 64 / T::kGroups;
  const typename DigitsOf<T>::Type digits(scale_halves(pair, g & 1));
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) {
    const int x = g * kVectors + j;
    __m512i h, l;
    digits.split(code(x), &h, &l);
    store(high + 64 * x, h);
    store(low + 64 * x, l);
  }
}

template <class T>
void unpack_digits(const uint8_t* head, const uint8_t* unit, int p, DigitChunk* chunk) {
  __m512i scales[T::kGroups / 2], mins[T::kMinPairs];
  uint8_t* high = chunk->digits[p][0];
  uint8_t* low = chunk->digits[p][1];
  if constexpr (T::kDirect) {
    T::scales(unit, scales, mins);
#pragma GCC unroll 16
    for (int g = 0; g < T::kGroups; ++g) {
      split_group<T>(
          g, scales[g / 2], [unit](int x) { return T::code(unit, x); }, high, low);
    }
  } else {
    alignas(64) uint8_t codes[64 * 64];
    T::unpack(unit, codes, 64, scales, mins);
#pragma GCC unroll 16
    for (int g = 0; g < T::kGroups; ++g) {
      split_group<T>(
          g, scales[g / 2], [&codes](int x) { return load(codes + 64 * x); }, high, low);
    }
  }
  _mm512_store_ps(chunk->d[p], T::d(head, unit));
  if constexpr (T::kHasMin) {
#pragma GCC unroll 8
    for (int i = 0; i < T::kMinPairs; ++i) store(chunk->mins[p][i], mins[i]);
    _mm512_store_ps(chunk->m[p], T::m(unit));
  }
}

// ---- a set: one tile of rows by one panel

// What the set before left in the tile registers goes to `c` (if it is not null) as late as this,
// before the first product: a store stops the product unit until the result is there. The
// registers are numbered in the instructions, so none can be a parameter.
[[gnu::always_inline]] inline void begin_lower(int32_t (*c)[kTileHeight][16]) {
  if (c != nullptr) _tile_stored(0, c[0][0], 64);
  _tile_zero(0);
  if (c != nullptr) _tile_stored(1, c[1][0], 64);
  _tile_zero(1);
}
[[gnu::always_inline]] inline void begin_upper(int32_t (*c)[kTileHeight][16]) {
  if (c != nullptr) _tile_stored(2, c[0][16], 64);
  _tile_zero(2);
  if (c != nullptr) _tile_stored(3, c[1][16], 64);
  _tile_zero(3);
}

// 64 k of a set; kTwo: it has more than 16 rows; kFirst: the sums begin, `before` is the place of
// those of the set before.
template <bool kUnsigned, bool kTwo, bool kFirst>
[[gnu::always_inline]] inline void multiply(const uint8_t* rows, const uint8_t* high,
                                            const uint8_t* low,
                                            int32_t (*before)[kTileHeight][16]) {
  _tile_loadd(4, rows, 64);
  _tile_loadd(6, high, 64);
  _tile_loadd(7, low, 64);
  if constexpr (kFirst) begin_lower(before);
  if constexpr (kUnsigned) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  } else {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  if constexpr (kTwo) {
    _tile_loadd(5, rows + 1024, 64);
    if constexpr (kFirst) begin_upper(before);
    if constexpr (kUnsigned) {
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    } else {
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
}

template <bool kTwo>
[[gnu::always_inline]] inline void store_tiles(int32_t (*c)[kTileHeight][16]) {
  _tile_stored(0, c[0][0], 64);
  _tile_stored(1, c[1][0], 64);
  if constexpr (kTwo) {
    _tile_stored(2, c[0][16], 64);
    _tile_stored(3, c[1][16], 64);
  }
}

// A set whose sums wait to be brought to float.
struct Waiting {
  const int32_t (*c)[kTileHeight][16] = nullptr;
  const uint8_t* record = nullptr;
  float* acc = nullptr;
  int64_t row = 0;  // of its first, in the product
  int p = 0;
};

// acc + w * (pair at p in every lane), pairs of int16. As an instruction that reads memory: the
// compilers make a broadcast of its own out of the intrinsic.
[[gnu::always_inline]] inline __m512i dot_pairs(__m512i acc, __m512i w, const int16_t* p) {
  __asm__("vpdpwssd %2%{1to16%}, %1, %0"
          : "+v"(acc)
          : "v"(w), "m"(*reinterpret_cast<const int32_t(*)[1]>(p)));
  return acc;
}

// Rows [first, first + kRows) of a set to float.
template <class T, bool kLast, int kRows>
[[gnu::always_inline]] inline void add_rows(const DigitStep& s, const Waiting& set, int first) {
  if (set.c == nullptr) return;
  constexpr int kSums = 2 * T::kMinPairs;
  const __m512 d = _mm512_load_ps(s.chunk->d[set.p]);
  const __m512 m = _mm512_load_ps(s.chunk->m[set.p]);
  __m512i mins[T::kMinPairs];
#pragma GCC unroll 8
  for (int i = 0; i < T::kMinPairs; ++i) mins[i] = load(s.chunk->mins[set.p][i]);
  const __mmask16 keep = s.is_first ? __mmask16(0) : __mmask16(0xffff);
  const int32_t* high = set.c[0][first];
  const int32_t* low = set.c[1][first];
  const float* da = reinterpret_cast<const float*>(set.record + kScalesAt) + first;
  const int16_t* sums = reinterpret_cast<const int16_t*>(set.record + kSumsAt<T>) + kSums * first;
  float* at = set.acc + 16 * first;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512i upper = _mm512_slli_epi32(load(high + 16 * r), DigitsOf<T>::Type::kShift);
    const __m512i total = _mm512_add_epi32(upper, load(low + 16 * r));
    __m512 acc = _mm512_maskz_load_ps(keep, at + 16 * r);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, broadcast(da + r)), _mm512_cvtepi32_ps(total), acc);
    if constexpr (T::kHasMin) {
      __m512i minima = dot_pairs(_mm512_setzero_si512(), mins[0], sums + kSums * r);
#pragma GCC unroll 7
      for (int i = 1; i < T::kMinPairs; ++i) {
        minima = dot_pairs(minima, mins[i], sums + kSums * r + 2 * i);
      }
      acc = _mm512_fnmadd_ps(_mm512_mul_ps(m, broadcast(da + r)), _mm512_cvtepi32_ps(minima), acc);
    }
    if constexpr (kLast) {
      const int64_t row = set.row + first + r;
      if (first + r < s.height && row >= s.row_begin && row < s.row_end) {
        finish_row(s, row, set.p, acc);
      }
    } else {
      _mm512_store_ps(at + 16 * r, acc);
    }
  }
}

template <class T, bool kTwo, bool kLast>
void add_super_block(const DigitStep& s) {
  using Digits = typename DigitsOf<T>::Type;
  constexpr int kRows = kTwo ? 8 : 4;  // of a set behind each 64 k
  DigitChunk* chunk = s.chunk;
  Waiting before, older;
  int32_t(*c)[kTileHeight][16] = nullptr;  // where the sums in the tile registers belong
  int turn = 0;
  for (int64_t i = 0; i < s.n_tiles; ++i) {
    const uint8_t* record = s.records + i * s.record_bytes;
    prefetch_part(s.ahead, i, s.n_tiles);
    prefetch_outputs(s, i);
    for (int p = 0; p < s.n_panels; ++p) {
      const uint8_t* high = chunk->digits[p][0];
      const uint8_t* low = chunk->digits[p][1];
      multiply<Digits::kUnsigned, kTwo, true>(record, high, low, c);
      add_rows<T, kLast, kRows>(s, older, 3 * kRows);
      for (int k = 1; k < 4; ++k) {
        multiply<Digits::kUnsigned, kTwo, false>(record + 2048 * k, high + 1024 * k, low + 1024 * k,
                                                 nullptr);
        add_rows<T, kLast, kRows>(s, before, (k - 1) * kRows);
      }
      c = chunk->c[turn ^= 1];
      older = before;
      before = {c, record, s.acc + (2 * i + p) * 16 * kTileHeight, s.row + i * s.height, p};
    }
  }
  store_tiles<kTwo>(c);
  add_rows<T, kLast, kRows>(s, older, 3 * kRows);
  for (int k = 0; k < 4; ++k) add_rows<T, kLast, kRows>(s, before, k * kRows);
}

template <class T>
void gemm256(const ProductArgs& args) {
  const int64_t height = args.a.tiles.height;
  const bool two = height > 16;
  Config config;
  const int64_t first = two ? 16 : height, second = two ? height - 16 : 16;
  for (int tile = 0; tile < 4; ++tile) config.set(tile, tile < 2 ? first : second, 64);
  config.set(4, first, 64);
  config.set(5, second, 64);
  config.set(6, 16, 64);
  config.set(7, 16, 64);
  load_config(config);
  const auto unpack = [&args](int64_t b, int64_t panel, int p, DigitChunk* chunk) {
    const uint8_t* base = args.w.data + panel * args.w.panel_bytes;
    unpack_digits<T>(base + b * T::kHeadBytes,
                     base + units_offset256<T>(args.w.n_in) + b * T::kUnitBytes, p, chunk);
  };
  const auto ahead = [&args](int64_t b, int64_t panel, Ahead* runs) {
    const uint8_t* base = args.w.data + panel * args.w.panel_bytes;
    runs->add(base + units_offset256<T>(args.w.n_in) + b * T::kUnitBytes, T::kUnitBytes);
  };
  walk_tiles<DigitChunk>(args, ActivationFormat::kQ8B256, unpack, ahead, [two](const DigitStep& s) {
    if (two) {
      s.is_last ? add_super_block<T, true, true>(s) : add_super_block<T, true, false>(s);
    } else {
      s.is_last ? add_super_block<T, false, true>(s) : add_super_block<T, false, false>(s);
    }
  });
  _tile_release();
}

int64_t scratch_bytes256(int64_t n_in) {
  return tile_scratch_bytes<DigitChunk>(n_in);
}

template <class T>
void improve256(LinearKernels& k, const char* gemm_name,
                int64_t (*scratch_bytes)(int64_t n_in) = scratch_bytes256) {
  k.gemm = gemm256<T>;
  k.gemm_name = gemm_name;
  k.scratch_bytes = scratch_bytes;
}

}  // namespace amx_tile
}  // namespace
}  // namespace okibi::cpu
