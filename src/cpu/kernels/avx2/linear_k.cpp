// The formats of 256 values without code books: how codes and integer scales come out of the packed
// layout. The loops are in product256.h. Index names: h = half of 128 values, k = quarter of a
// half, j = vector of a run of 32 values, g = group.
#include "cpu/kernels/avx2/linear.h"
#include "cpu/kernels/avx2/product256.h"
#include "tensor/codebooks.h"

namespace okibi::cpu::avx2 {
namespace {

// Byte `byte` of every lane in both 16-bit halves, zero-extended.
inline __m256i repeat16(__m256i lanes, int byte) {
  const __m256i first = _mm256_setr_epi8(0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12, -1,
                                         0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12, -1);
  // An index of 0xff plus 0..3 would not stay above 127, so the step leaves those bytes alone.
  const __m256i step = _mm256_set1_epi16(static_cast<int16_t>(byte));
  return _mm256_shuffle_epi8(lanes, _mm256_add_epi8(first, step));
}

// The same with sign.
inline __m256i repeat16_signed(__m256i lanes, int byte) {
  return _mm256_srai_epi16(_mm256_slli_epi16(repeat16(lanes, byte), 8), 8);
}

// Bytes 2i and 2i + 1 of every lane as its two 16-bit halves, zero-extended.
inline __m256i widen_pair(__m256i lanes, int i) {
  const __m256i first = _mm256_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1,
                                         0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1);
  return _mm256_shuffle_epi8(
      lanes, _mm256_add_epi8(first, _mm256_set1_epi16(static_cast<int16_t>(2 * i))));
}

inline __m256i masked(__m256i v, int mask) {
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask)));
}

// Two 16-bit halves of scales 2i and 2i + 1.
inline __m256i pair_of(const __m256i* scale, int i) {
  return _mm256_blend_epi16(scale[2 * i], scale[2 * i + 1], 0xaa);
}

// Pairs for codes that were left `offset` too large, from the scales of 16 groups.
inline void offset_pairs(Scales256* s, int offset) {
  for (int i = 0; i < 8; ++i) {
    s->pair[i] =
        _mm256_mullo_epi16(pair_of(s->scale, i), _mm256_set1_epi16(static_cast<int16_t>(offset)));
  }
}

// Two-bit codes of half h: 8 vectors, in each four values 32 apart.
inline void two_bit_codes(const uint8_t* q, int h, __m256i* w) {
  for (int j = 0; j < 8; ++j) {
    const __m256i v = load(q + 32 * (8 * h + j));
    w[j] = masked(v, 3);
    w[j + 8] = masked(_mm256_srli_epi16(v, 2), 3);
    w[j + 16] = masked(_mm256_srli_epi16(v, 4), 3);
    w[j + 24] = masked(_mm256_srli_epi16(v, 6), 3);
  }
}

// The eight 6-bit pairs of scale and minimum, 12 bytes per row, and the two f16 factors.
inline void scales_and_minima(const uint8_t* p, const uint8_t* factors, Scales256* s) {
  const __m256i a = load(p), b = load(p + 32), c = load(p + 64);
  const __m256i scale[2] = {masked(a, 63),
                            _mm256_or_si256(low_nibbles(c), masked(_mm256_srli_epi16(a, 2), 0x30))};
  const __m256i minimum[2] = {
      masked(b, 63), _mm256_or_si256(high_nibbles(c), masked(_mm256_srli_epi16(b, 2), 0x30))};
  for (int g = 0; g < 8; ++g) {
    s->scale[g] = repeat16(scale[g >> 2], g & 3);
    s->pair[g] = repeat16(minimum[g >> 2], g & 3);  // both sums of 16 in a group of 32
  }
  s->d = halves(factors);
  s->m = halves(factors + 16);
}

struct Q2_K {
  static constexpr int kType = weight::kQ2_K, kMain = 640, kTail = 32;
  static constexpr Field kFields[] = {
      {16, 64, 4, 0, false}, {0, 16, 4, 512, false}, {80, 4, 2, 0, true}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 8, kGroup = 16, kChunk = 128;
  static constexpr Pairs kPairs = Pairs::kMinima;
  static void codes(const uint8_t* main, int h, __m256i* w) { two_bit_codes(main, h, w); }
  static void scales(const uint8_t* main, const uint8_t* tail, Scales256* s) {
    for (int i = 0; i < 4; ++i) {
      const __m256i v = load(main + 512 + 32 * i);
      const __m256i scale = low_nibbles(v), minimum = high_nibbles(v);
      for (int g = 0; g < 4; ++g) s->scale[4 * i + g] = repeat16(scale, g);
      for (int g = 0; g < 2; ++g) s->pair[2 * i + g] = widen_pair(minimum, g);
    }
    s->d = halves(tail);
    s->m = halves(tail + 16);
  }
};

// Codes 0..7, less 4: the third bit stands in a mask of 32 bytes, bit g for group of 32 g.
struct Q3_K {
  static constexpr int kType = weight::kQ3_K, kMain = 864, kTail = 16;
  static constexpr Field kFields[] = {
      {32, 64, 4, 0, false}, {0, 32, 4, 512, false}, {96, 12, 4, 768, false}, {108, 2, 2, 0, true}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 8, kGroup = 16, kChunk = 128;
  static constexpr Pairs kPairs = Pairs::kOffset;
  static void codes(const uint8_t* main, int h, __m256i* w) {
    two_bit_codes(main, h, w);
    for (int j = 0; j < 8; ++j) {
      const __m256i mask = _mm256_srli_epi16(load(main + 512 + 32 * j), 4 * h);
      for (int k = 0; k < 4; ++k) {
        const __m256i bit = masked(_mm256_slli_epi16(_mm256_srli_epi16(mask, k), 2), 4);
        w[8 * k + j] = _mm256_or_si256(w[8 * k + j], bit);
      }
    }
  }
  static void scales(const uint8_t* main, const uint8_t* tail, Scales256* s) {
    const __m256i high = load(main + 768 + 64), offset = _mm256_set1_epi8(32);
    for (int i = 0; i < 4; ++i) {
      const __m256i v = load(main + 768 + 32 * (i & 1));
      const __m256i low = i < 2 ? low_nibbles(v) : high_nibbles(v);
      const __m256i two = masked(_mm256_srli_epi16(high, 2 * i), 3);
      const __m256i scale =
          _mm256_sub_epi8(_mm256_or_si256(low, _mm256_slli_epi16(two, 4)), offset);
      for (int g = 0; g < 4; ++g) s->scale[4 * i + g] = repeat16_signed(scale, g);
    }
    offset_pairs(s, 4);
    s->d = halves(tail);
  }
};

struct Q4_K {
  static constexpr int kType = weight::kQ4_K, kMain = 1152, kTail = 0;
  static constexpr Field kFields[] = {
      {16, 128, 4, 0, false}, {4, 12, 4, 1024, false}, {0, 4, 2, 1120, false}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 8, kGroup = 32, kChunk = 64;
  static constexpr Pairs kPairs = Pairs::kMinima;
  static void codes(const uint8_t* main, int chunk, __m256i* w) {
    for (int j = 0; j < 8; ++j) {
      const __m256i v = load(main + 32 * (8 * chunk + j));
      w[j] = low_nibbles(v);
      w[j + 8] = high_nibbles(v);
    }
  }
  static void scales(const uint8_t* main, const uint8_t*, Scales256* s) {
    scales_and_minima(main + 1024, main + 1120, s);
  }
};

// Q4_K with a fifth bit: bit g of 32 bytes for group g.
struct Q5_K {
  static constexpr int kType = weight::kQ5_K, kMain = 1408, kTail = 0;
  static constexpr Field kFields[] = {{48, 128, 4, 0, false},
                                      {16, 32, 4, 1024, false},
                                      {4, 12, 4, 1280, false},
                                      {0, 4, 2, 1376, false}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 4, kGroup = 32, kChunk = 64;
  static constexpr Pairs kPairs = Pairs::kMinima;
  static void codes(const uint8_t* main, int chunk, __m256i* w) {
    Q4_K::codes(main, chunk, w);
    for (int j = 0; j < 8; ++j) {
      const __m256i bits = _mm256_srli_epi16(load(main + 1024 + 32 * j), 2 * chunk);
      w[j] = _mm256_or_si256(w[j], masked(_mm256_slli_epi16(bits, 4), 16));
      w[j + 8] = _mm256_or_si256(w[j + 8], masked(_mm256_slli_epi16(bits, 3), 16));
    }
  }
  static void scales(const uint8_t* main, const uint8_t*, Scales256* s) {
    scales_and_minima(main + 1280, main + 1376, s);
  }
};

// Codes 0..63, less 32.
struct Q6_K {
  static constexpr int kType = weight::kQ6_K, kMain = 1664, kTail = 16;
  static constexpr Field kFields[] = {{0, 128, 4, 0, false},
                                      {128, 64, 4, 1024, false},
                                      {192, 16, 4, 1536, false},
                                      {208, 2, 2, 0, true}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 2, kGroup = 16, kChunk = 128;
  static constexpr Pairs kPairs = Pairs::kOffset;
  static void codes(const uint8_t* main, int h, __m256i* w) {
    for (int j = 0; j < 8; ++j) {
      const __m256i a = load(main + 32 * (16 * h + j)), b = load(main + 32 * (16 * h + 8 + j));
      const __m256i high = load(main + 1024 + 32 * (8 * h + j));
      w[j] = _mm256_or_si256(low_nibbles(a), masked(_mm256_slli_epi16(high, 4), 0x30));
      w[j + 8] = _mm256_or_si256(low_nibbles(b), masked(_mm256_slli_epi16(high, 2), 0x30));
      w[j + 16] = _mm256_or_si256(high_nibbles(a), masked(high, 0x30));
      w[j + 24] = _mm256_or_si256(high_nibbles(b), masked(_mm256_srli_epi16(high, 2), 0x30));
    }
  }
  static void scales(const uint8_t* main, const uint8_t* tail, Scales256* s) {
    for (int i = 0; i < 4; ++i) {
      const __m256i v = load(main + 1536 + 32 * i);
      for (int g = 0; g < 4; ++g) s->scale[4 * i + g] = repeat16_signed(v, g);
    }
    offset_pairs(s, 32);
    s->d = halves(tail);
  }
};

struct IQ4_XS {
  static constexpr int kType = weight::kIQ4_XS, kMain = 1088, kTail = 0;
  static constexpr Field kFields[] = {{8, 128, 4, 0, false},
                                      {4, 4, 4, 1024, false},
                                      {2, 2, 2, 1056, false},
                                      {0, 2, 2, 1072, false}};
  static constexpr bool kSigned = true;
  static constexpr int kWidth = 1, kGroup = 32, kChunk = 32;
  static constexpr Pairs kPairs = Pairs::kNone;
  static void codes(const uint8_t* main, int g, __m256i* w) {
    const __m256i levels = _mm256_broadcastsi128_si256(load128(kIq4NlValues));
    for (int j = 0; j < 4; ++j) {
      const __m256i v = load(main + 32 * (4 * g + j));
      w[j] = _mm256_shuffle_epi8(levels, low_nibbles(v));
      w[j + 4] = _mm256_shuffle_epi8(levels, high_nibbles(v));
    }
  }
  static void scales(const uint8_t* main, const uint8_t*, Scales256* s) {
    // A row's eight low nibbles are a 32-bit number, its eight high pairs a 16-bit one.
    const __m256i low = load(main + 1024);
    const __m256i high = _mm256_cvtepu16_epi32(load128(main + 1056));
    for (int g = 0; g < 8; ++g) {
      const __m256i four = _mm256_and_si256(_mm256_srli_epi32(low, 4 * g), _mm256_set1_epi32(15));
      const __m256i two = _mm256_and_si256(_mm256_srli_epi32(high, 2 * g), _mm256_set1_epi32(3));
      const __m256i scale = _mm256_or_si256(four, _mm256_slli_epi32(two, 4));
      const __m256i both = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
      s->scale[g] = _mm256_sub_epi16(both, _mm256_set1_epi16(32));
    }
    s->d = halves(main + 1072);
  }
};

// Codes 0..2, less 1, under d alone.
inline void ternary_scales(const uint8_t* d, Scales256* s) {
  for (__m256i& scale : s->scale) scale = _mm256_set1_epi16(1);
  for (__m256i& pair : s->pair) pair = _mm256_set1_epi16(1);
  s->d = halves(d);
}

struct TQ2_0 {
  static constexpr int kType = weight::kTQ2_0, kMain = 512, kTail = 16;
  static constexpr Field kFields[] = {{0, 64, 4, 0, false}, {64, 2, 2, 0, true}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 32, kGroup = 256, kChunk = 128;
  static constexpr Pairs kPairs = Pairs::kOffset;
  static void codes(const uint8_t* main, int h, __m256i* w) { two_bit_codes(main, h, w); }
  static void scales(const uint8_t*, const uint8_t* tail, Scales256* s) { ternary_scales(tail, s); }
};

struct TQ1_0 {
  static constexpr int kType = weight::kTQ1_0, kMain = 416, kTail = 16;
  static constexpr Field kFields[] = {{0, 52, 4, 0, false}, {52, 2, 2, 0, true}};
  static constexpr bool kSigned = false;
  static constexpr int kWidth = 32, kGroup = 256, kChunk = 256;
  static constexpr Pairs kPairs = Pairs::kOffset;
  // Runs of 32, 16 and 4 bytes hold trits 5, 5 and 4 deep.
  static void codes(const uint8_t* main, int, __m256i* w) {
    for (int j = 0; j < 13; ++j) {
      const int stride = j < 8 ? 8 : j < 12 ? 4 : 1, depth = j < 12 ? 5 : 4;
      __m256i* out = w + (j < 8 ? j : j < 12 ? 40 + j - 8 : 60);
      __m256i v = load(main + 32 * j);
      for (int n = 0; n < depth; ++n) {
        out[n * stride] = top_trit(v);
        v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));  // times 3 modulo 256
      }
    }
  }
  // (3 v) >> 8 of bytes: 1 from 86 on, 2 from 171 on.
  static __m256i top_trit(__m256i v) {
    const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
    const __m256i two =
        _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(static_cast<char>(171))), v);
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
  }
  static void scales(const uint8_t*, const uint8_t* tail, Scales256* s) { ternary_scales(tail, s); }
};

}  // namespace

void install_linear_k(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ2_K] = kernels256<Q2_K>("q2k_x8", "avx2.gemv_q2k", "avx2.gemm_q2k");
  t[weight::kQ3_K] = kernels256<Q3_K>("q3k_x8", "avx2.gemv_q3k", "avx2.gemm_q3k");
  t[weight::kQ4_K] = kernels256<Q4_K>("q4k_x8", "avx2.gemv_q4k", "avx2.gemm_q4k");
  t[weight::kQ5_K] = kernels256<Q5_K>("q5k_x8", "avx2.gemv_q5k", "avx2.gemm_q5k");
  t[weight::kQ6_K] = kernels256<Q6_K>("q6k_x8", "avx2.gemv_q6k", "avx2.gemm_q6k");
  t[weight::kIQ4_XS] = kernels256<IQ4_XS>("iq4_xs_x8", "avx2.gemv_iq4_xs", "avx2.gemm_iq4_xs");
  t[weight::kTQ1_0] = kernels256<TQ1_0>("tq1_0_x8", "avx2.gemv_tq1_0", "avx2.gemm_tq1_0");
  t[weight::kTQ2_0] = kernels256<TQ2_0>("tq2_0_x8", "avx2.gemv_tq2_0", "avx2.gemm_tq2_0");
}

}  // namespace okibi::cpu::avx2
