// The formats with an activation scale per 32 values: how their codes and scales come out of the
// packed layout. The loops are in product32.h.
#include "cpu/kernels/avx2/linear.h"
#include "cpu/kernels/avx2/product32.h"
#include "tensor/codebooks.h"

namespace okibi::cpu::avx2 {
namespace {

// 16 bytes of nibbles per row: low ones are values 0..15, high ones 16..31.
inline void nibble_codes(const uint8_t* main, __m256i* w) {
  for (int j = 0; j < 4; ++j) {
    const __m256i v = load(main + 32 * j);
    w[j] = low_nibbles(v);
    w[j + 4] = high_nibbles(v);
  }
}

inline void table_codes(const uint8_t* main, const int8_t* table, __m256i* w) {
  const __m256i levels = _mm256_broadcastsi128_si256(load128(table));
  nibble_codes(main, w);
  for (int j = 0; j < 8; ++j) w[j] = _mm256_shuffle_epi8(levels, w[j]);
}

// Byte i of every lane, four times.
inline __m256i repeat_byte(__m256i lanes, int i) {
  const __m256i first = _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c,
                                         0x08080808, 0x04040404, 0);
  return _mm256_shuffle_epi8(lanes, _mm256_add_epi8(first, _mm256_set1_epi8(static_cast<char>(i))));
}

// Of 32 bits per row, bits 4i .. 4i + 3 as four bytes: 0xff where set.
inline __m256i bits_of(__m256i lanes, int i) {
  const __m256i mask = _mm256_set1_epi32(i & 1 ? static_cast<int>(0x80402010u) : 0x08040201);
  return _mm256_cmpeq_epi8(_mm256_and_si256(repeat_byte(lanes, i >> 1), mask), mask);
}

inline void fifth_bits(const uint8_t* bits, __m256i* w) {
  const __m256i lanes = load(bits);
  for (int i = 0; i < 8; ++i) {
    w[i] = _mm256_or_si256(w[i], _mm256_and_si256(bits_of(lanes, i), _mm256_set1_epi8(16)));
  }
}

// One f16 per row, or two.
inline void half_scale(const uint8_t* tail, Scales32* s) {
  s->d = halves(tail);
}
inline void half_scale_and_min(const uint8_t* tail, Scales32* s) {
  s->d = halves(tail);
  s->second = halves(tail + 16);
}

// Widths: 2 * 127 * (largest code) * width <= 32767.
struct Q4_0 {
  static constexpr int kType = weight::kQ4_0, kMain = 128, kTail = 16;
  static constexpr Field kFields[] = {{2, 16, 4, 0, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 8, kOffset = 8;  // 15
  static void codes(const uint8_t* main, __m256i* w) { nibble_codes(main, w); }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

struct Q4_1 {
  static constexpr int kType = weight::kQ4_1, kMain = 128, kTail = 32;
  static constexpr Field kFields[] = {{4, 16, 4, 0, false}, {0, 4, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = true, kPer16 = false;
  static constexpr int kWidth = 8, kOffset = 0;  // 15
  static void codes(const uint8_t* main, __m256i* w) { nibble_codes(main, w); }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale_and_min(tail, s); }
};

struct Q5_0 {
  static constexpr int kType = weight::kQ5_0, kMain = 160, kTail = 16;
  static constexpr Field kFields[] = {
      {6, 16, 4, 0, false}, {2, 4, 4, 128, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 4, kOffset = 16;  // 31
  static void codes(const uint8_t* main, __m256i* w) {
    nibble_codes(main, w);
    fifth_bits(main + 128, w);
  }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

struct Q5_1 {
  static constexpr int kType = weight::kQ5_1, kMain = 160, kTail = 32;
  static constexpr Field kFields[] = {
      {8, 16, 4, 0, false}, {4, 4, 4, 128, false}, {0, 4, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = true, kPer16 = false;
  static constexpr int kWidth = 4, kOffset = 0;  // 31
  static void codes(const uint8_t* main, __m256i* w) { Q5_0::codes(main, w); }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale_and_min(tail, s); }
};

struct Q8_0 {
  static constexpr int kType = weight::kQ8_0, kMain = 256, kTail = 16;
  static constexpr Field kFields[] = {{2, 32, 4, 0, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = true, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 1, kOffset = 0;  // 128
  static void codes(const uint8_t* main, __m256i* w) {
    for (int j = 0; j < 8; ++j) w[j] = load(main + 32 * j);
  }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

struct IQ4_NL {
  static constexpr int kType = weight::kIQ4_NL, kMain = 128, kTail = 16;
  static constexpr Field kFields[] = {{2, 16, 4, 0, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = true, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 1, kOffset = 0;  // 127
  static void codes(const uint8_t* main, __m256i* w) { table_codes(main, kIq4NlValues, w); }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

struct MXFP4 {
  static constexpr int kType = weight::kMXFP4, kMain = 128, kTail = 8;
  static constexpr Field kFields[] = {{1, 16, 4, 0, false}, {0, 1, 1, 0, true}};
  static constexpr bool kSigned = true, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 8, kOffset = 0;  // 12
  static void codes(const uint8_t* main, __m256i* w) { table_codes(main, kFp4ValuesX2, w); }
  // 2^(e - 128): the exponent field is e - 1, and the two lowest are subnormal.
  static void scales(const uint8_t* tail, int, Scales32* s) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(tail)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
    s->d = _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal));
  }
};

// Nibbles alternate per 8 values: low are values 0..7 of a group of 16, high 8..15.
struct NVFP4 {
  static constexpr int kType = weight::kNVFP4, kMain = 256, kTail = 32;
  static constexpr Field kFields[] = {{4, 32, 4, 0, false}, {0, 4, 1, 0, true}};
  static constexpr bool kSigned = true, kHasMin = false, kPer16 = true;
  static constexpr int kWidth = 8, kOffset = 0;  // 12
  static void codes(const uint8_t* main, __m256i* w) {
    const __m256i levels = _mm256_broadcastsi128_si256(load128(kFp4ValuesX2));
    for (int j = 0; j < 4; ++j) {
      const int first = 4 * (j >> 1) + (j & 1);
      const __m256i v = load(main + 32 * j);
      w[first] = _mm256_shuffle_epi8(levels, low_nibbles(v));
      w[first + 2] = _mm256_shuffle_epi8(levels, high_nibbles(v));
    }
  }
  // Half of an unsigned E4M3: bits eeeemmm, exponent bias 7, 0x7f counts as zero.
  static __m256 half_e4m3(const uint8_t* p) {
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    b = _mm256_and_si256(b, _mm256_set1_epi32(0x7f));
    b = _mm256_andnot_si256(_mm256_cmpeq_epi32(b, _mm256_set1_epi32(0x7f)), b);
    const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(b), _mm256_set1_ps(0x1p-10f));
    const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(b, 20), _mm256_set1_epi32(119 << 23));
    const __m256 is_normal = _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, _mm256_set1_epi32(7)));
    return _mm256_blendv_ps(subnormal, _mm256_castsi256_ps(normal), is_normal);
  }
  static void scales(const uint8_t* tail, int part, Scales32* s) {
    s->d = half_e4m3(tail + 16 * part);
    s->second = half_e4m3(tail + 16 * part + 8);
  }
};

// Bits as codes 0 and 2, less 1.
struct Q1_0 {
  static constexpr int kType = weight::kQ1_0, kMain = 128, kTail = 16;
  static constexpr Field kFields[] = {{2, 16, 4, 0, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 8, kOffset = 1;  // 2
  static void codes(const uint8_t* main, __m256i* w) {
    const __m256i lanes = load(main);
    for (int i = 0; i < 8; ++i) {
      w[i] = _mm256_and_si256(bits_of(lanes, i), _mm256_set1_epi8(2));
    }
  }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

// Four neighbouring values in a byte.
struct Q2_0 {
  static constexpr int kType = weight::kQ2_0, kMain = 128, kTail = 16;
  static constexpr Field kFields[] = {{2, 16, 4, 0, false}, {0, 2, 2, 0, true}};
  static constexpr bool kSigned = false, kHasMin = false, kPer16 = false;
  static constexpr int kWidth = 8, kOffset = 1;  // 3
  static void codes(const uint8_t* main, __m256i* w) {
    // Of a byte repeated four times, the last two copies are shifted down by 4 and the odd ones
    // look up their upper two bits.
    const __m256i upper_half = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const __m256i odd = _mm256_set1_epi16(static_cast<int16_t>(0xff00));
    const __m256i shifted_by_2 =
        _mm256_broadcastsi128_si256(_mm_set_epi8(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0));
    for (int i = 0; i < 8; ++i) {
      const __m256i bytes = repeat_byte(load(main + 32 * (i >> 2)), i & 3);
      const __m256i nibble =
          low_nibbles(_mm256_blendv_epi8(bytes, _mm256_srli_epi16(bytes, 4), upper_half));
      w[i] = _mm256_blendv_epi8(_mm256_and_si256(nibble, _mm256_set1_epi8(3)),
                                _mm256_shuffle_epi8(shifted_by_2, nibble), odd);
    }
  }
  static void scales(const uint8_t* tail, int, Scales32* s) { half_scale(tail, s); }
};

}  // namespace

void install_linear_b32(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ4_0] = kernels32<Q4_0>("q4_0_x8", "avx2.gemv_q4_0", "avx2.gemm_q4_0");
  t[weight::kQ4_1] = kernels32<Q4_1>("q4_1_x8", "avx2.gemv_q4_1", "avx2.gemm_q4_1");
  t[weight::kQ5_0] = kernels32<Q5_0>("q5_0_x8", "avx2.gemv_q5_0", "avx2.gemm_q5_0");
  t[weight::kQ5_1] = kernels32<Q5_1>("q5_1_x8", "avx2.gemv_q5_1", "avx2.gemm_q5_1");
  t[weight::kQ8_0] = kernels32<Q8_0>("q8_0_x8", "avx2.gemv_q8_0", "avx2.gemm_q8_0");
  t[weight::kIQ4_NL] = kernels32<IQ4_NL>("iq4_nl_x8", "avx2.gemv_iq4_nl", "avx2.gemm_iq4_nl");
  t[weight::kMXFP4] = kernels32<MXFP4>("mxfp4_x8", "avx2.gemv_mxfp4", "avx2.gemm_mxfp4");
  t[weight::kNVFP4] = kernels32<NVFP4>("nvfp4_x8", "avx2.gemv_nvfp4", "avx2.gemm_nvfp4");
  t[weight::kQ1_0] = kernels32<Q1_0>("q1_0_x8", "avx2.gemv_q1_0", "avx2.gemm_q1_0");
  t[weight::kQ2_0] = kernels32<Q2_0>("q2_0_x8", "avx2.gemv_q2_0", "avx2.gemm_q2_0");
}

}  // namespace okibi::cpu::avx2
