// The formats whose values come from code books of 4 or 8 values per index. Looking rows up next to
// each other would need gathers, so a row is unpacked along its own values and multiplied as it
// stands; sums are exact, so adding up the lanes at the end changes no bit. A panel is eight rows,
// super-block by super-block. For many activation rows the unpacked codes are transposed into the
// form of product256.h.
#include "cpu/kernels/avx2/linear.h"
#include "cpu/kernels/avx2/product256.h"
#include "tensor/codebooks.h"

namespace okibi::cpu::avx2 {
namespace {

// One super-block of one row.
struct RowBlock {
  __m256i v[8];      // values; of types with signs magnitudes
  __m256i minus[8];  // of those: -1 where the value is negative, else 0
  __m256i scale[8];  // of values 32 g ..: low half of the register for 16 g, high half for 16 g + 1
  uint16_t d;        // f16
};

inline uint16_t read16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint32_t read32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline int64_t row8(const void* p) {
  int64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// Rows of four values go to vectors by way of memory, two by two; the register keeps compilers from
// inserting them one by one instead, which takes more operations and all of them on one port.
inline void copy44(const uint8_t* first, const uint8_t* second, uint8_t* to) {
  uint64_t v = read32(first) | static_cast<uint64_t>(read32(second)) << 32;
  asm("" : "+r"(v));
  std::memcpy(to, &v, sizeof v);
}

// Byte k of `bytes` over values 8k .. 8k + 7.
inline __m256i spread8(uint32_t bytes) {
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                         2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  return _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bytes)), order);
}

// Bit j of byte k to -1 or 0 over value 8k + j.
inline __m256i minus_mask(uint32_t signs) {
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread8(signs), bit), bit);
}
inline __m256i negate(__m256i v, __m256i minus) {
  return _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
}

// Seven bits a byte to eight whose number of ones is even.
inline __m256i even_bytes(__m256i seven) {
  const __m256i odd =
      _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0, 0,
                       -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, mask));
  const __m256i high =
      _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(seven, 4), mask));
  return _mm256_xor_si256(seven, _mm256_xor_si256(low, high));
}
// Word g: four fields of seven signs and the scale of values 32g ..
inline void place_words(__m256i words, RowBlock* out) {
  const auto field = [words](int shift, int mask) {
    return _mm256_and_si256(_mm256_slli_epi32(words, shift), _mm256_set1_epi32(mask));
  };
  const __m256i seven = _mm256_or_si256(_mm256_or_si256(field(0, 0x7f), field(1, 0x7f00)),
                                        _mm256_or_si256(field(2, 0x7f0000), field(3, 0x7f000000)));
  const __m256i scale = _mm256_or_si256(_mm256_srli_epi32(words, 27), _mm256_set1_epi32(1));
  alignas(32) uint32_t signs[8], scales[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(signs), even_bytes(seven));
  _mm256_store_si256(reinterpret_cast<__m256i*>(scales),
                     _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16)));
  // Through memory each of them is a broadcasting load.
  asm("" : "+m"(signs), "+m"(scales));
  for (int g = 0; g < 8; ++g) {
    out->minus[g] = minus_mask(signs[g]);
    out->scale[g] = _mm256_set1_epi32(static_cast<int>(scales[g]));
  }
}

inline __m256i same_scale(int s) {
  return _mm256_set1_epi16(static_cast<int16_t>(s));
}

// Sixteen scales in a byte each to RowBlock::scale.
inline void place_scales(__m128i bytes, __m256i* scale) {
  const __m256i both = _mm256_broadcastsi128_si256(bytes);
  const __m256i first = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 1,
                                         -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1);
  for (int g = 0; g < 8; ++g) {
    const __m256i step = _mm256_set1_epi16(static_cast<int16_t>(2 * g));
    scale[g] = _mm256_shuffle_epi8(both, _mm256_add_epi8(first, step));
  }
}

// Sixteen nibbles s, low ones first, as 2s + 1.
inline __m128i odd_nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i s =
      _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

// Each format gives kType, kBytes, kFactor (what d is multiplied by), kWidth (product32.h) and
// whether its values are magnitudes with signs.
struct IQ2_XXS {
  static constexpr int kType = weight::kIQ2_XXS, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static constexpr bool kHasSigns = true;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 2 + 8 * g;
      out->v[g] = _mm256_set_epi64x(row8(kIq2XxsGrid[q[3]]), row8(kIq2XxsGrid[q[2]]),
                                    row8(kIq2XxsGrid[q[1]]), row8(kIq2XxsGrid[q[0]]));
    }
    // The odd words of both, brought back into order.
    const __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(load(b + 2)),
                                         _mm256_castsi256_ps(load(b + 34)), 0xdd);
    place_words(_mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xd8), out);
  }
};

struct IQ2_XS {
  static constexpr int kType = weight::kIQ2_XS, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static constexpr bool kHasSigns = true;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    const __m256i seven =
        _mm256_packus_epi16(_mm256_srli_epi16(load(b + 2), 9), _mm256_srli_epi16(load(b + 34), 9));
    alignas(32) uint32_t signs[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(signs),
                       even_bytes(_mm256_permute4x64_epi64(seven, 0xd8)));
    asm("" : "+m"(signs));
    for (int g = 0; g < 8; ++g) {
      uint64_t w;
      std::memcpy(&w, b + 2 + 8 * g, sizeof w);
      out->v[g] =
          _mm256_set_epi64x(row8(kIq2XsGrid[(w >> 48) & 511]), row8(kIq2XsGrid[(w >> 32) & 511]),
                            row8(kIq2XsGrid[(w >> 16) & 511]), row8(kIq2XsGrid[w & 511]));
      out->minus[g] = minus_mask(signs[g]);
    }
    place_scales(odd_nibbles(b + 66), out->scale);
  }
};

struct IQ2_S {
  static constexpr int kType = weight::kIQ2_S, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static constexpr bool kHasSigns = true;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 2 + 4 * g;
      const uint32_t high = b[66 + g];
      const __m256i v = _mm256_set_epi64x(row8(kIq2SGrid[q[3] | ((high << 2) & 0x300)]),
                                          row8(kIq2SGrid[q[2] | ((high << 4) & 0x300)]),
                                          row8(kIq2SGrid[q[1] | ((high << 6) & 0x300)]),
                                          row8(kIq2SGrid[q[0] | ((high << 8) & 0x300)]));
      out->v[g] = v;
      out->minus[g] = minus_mask(read32(b + 34 + 4 * g));
    }
    place_scales(odd_nibbles(b + 74), out->scale);
  }
};

struct IQ3_XXS {
  static constexpr int kType = weight::kIQ3_XXS, kWidth = 2;  // 62
  static constexpr float kFactor = 0.25f;
  static constexpr bool kHasSigns = true;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    alignas(32) uint8_t values[256];
#pragma GCC unroll 16
    for (int n = 0; n < 64; n += 2) {
      copy44(kIq3XxsGrid[b[2 + n]], kIq3XxsGrid[b[3 + n]], values + 4 * n);
    }
    place_words(load(b + 66), out);
    for (int g = 0; g < 8; ++g) out->v[g] = load(values + 32 * g);
  }
};

struct IQ3_S {
  static constexpr int kType = weight::kIQ3_S, kWidth = 4;  // 15
  static constexpr float kFactor = 1.0f;
  static constexpr bool kHasSigns = true;
  // Sixteen indices: a byte and one of 16 bits each.
  static __m256i indices(const uint8_t* low, int high) {
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                          8192, 16384, -32768);
    const __m256i bits = _mm256_and_si256(_mm256_set1_epi16(static_cast<int16_t>(high)), bit);
    const __m256i ninth = _mm256_and_si256(_mm256_cmpeq_epi16(bits, bit), _mm256_set1_epi16(256));
    return _mm256_or_si256(_mm256_cvtepu8_epi16(load128(low)), ninth);
  }
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    alignas(32) uint16_t index[64];
    alignas(32) uint8_t values[256];
    for (int i = 0; i < 4; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16 * i),
                         indices(b + 2 + 16 * i, read16(b + 66 + 2 * i)));
    }
#pragma GCC unroll 16
    for (int n = 0; n < 64; n += 2) {
      copy44(kIq3SGrid[index[n]], kIq3SGrid[index[n + 1]], values + 4 * n);
    }
    for (int g = 0; g < 8; ++g) {
      out->v[g] = load(values + 32 * g);
      out->minus[g] = minus_mask(read32(b + 74 + 4 * g));
      out->scale[g] = same_scale(2 * ((b[106 + (g >> 1)] >> (4 * (g & 1))) & 15) + 1);
    }
  }
};

// 8 * grid + delta, delta being 1 or -1 per value.
inline __m256i shifted(__m256i grid, __m256i delta) {
  const __m256i by2 = _mm256_add_epi8(grid, grid), by4 = _mm256_add_epi8(by2, by2);
  return _mm256_add_epi8(_mm256_add_epi8(by4, by4), delta);
}

struct IQ1_S {
  static constexpr int kType = weight::kIQ1_S, kWidth = 4;  // 9
  static constexpr float kFactor = 0.125f;
  static constexpr bool kHasSigns = false;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 2 + 4 * g;
      const uint32_t h = read16(b + 34 + 2 * g);
      const __m256i v = _mm256_set_epi64x(
          row8(kIq1Grid[q[3] | ((h >> 1) & 0x700)]), row8(kIq1Grid[q[2] | ((h << 2) & 0x700)]),
          row8(kIq1Grid[q[1] | ((h << 5) & 0x700)]), row8(kIq1Grid[q[0] | ((h << 8) & 0x700)]));
      out->v[g] = shifted(v, _mm256_set1_epi8(h & 0x8000 ? -1 : 1));
      out->scale[g] = same_scale(static_cast<int>(2 * ((h >> 12) & 7) + 1));
    }
  }
};

struct IQ1_M {
  static constexpr int kType = weight::kIQ1_M, kWidth = 4;  // 9
  static constexpr float kFactor = 0.125f;
  static constexpr bool kHasSigns = false;
  static void unpack(const uint8_t* b, RowBlock* out) {
    uint64_t c;  // four words: f16 nibbles on top of four 3-bit scales each
    std::memcpy(&c, b + 48, sizeof c);
    out->d = static_cast<uint16_t>(((c >> 12) & 0xf) | ((c >> 24) & 0xf0) | ((c >> 36) & 0xf00) |
                                   ((c >> 48) & 0xf000));
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 4 * g;
      const uint32_t h = read16(b + 32 + 2 * g);  // a nibble per index: three bits and the delta
      const __m256i v = _mm256_set_epi64x(
          row8(kIq1Grid[q[3] | ((h >> 4) & 0x700)]), row8(kIq1Grid[q[2] | (h & 0x700)]),
          row8(kIq1Grid[q[1] | ((h << 4) & 0x700)]), row8(kIq1Grid[q[0] | ((h << 8) & 0x700)]));
      // Bit 3 of nibble k to byte k: -1 where set, else 1.
      const uint32_t bits =
          ((h >> 3) & 1) | ((h << 1) & 0x100) | ((h << 5) & 0x10000) | ((h << 9) & 0x1000000);
      out->v[g] = shifted(v, spread8(0x01010101u - 2 * bits + (bits << 8)));
      const uint32_t s = static_cast<uint32_t>(c >> (16 * (g >> 1) + 6 * (g & 1)));
      out->scale[g] =
          _mm256_setr_m128i(_mm_set1_epi16(static_cast<int16_t>(2 * (s & 7) + 1)),
                            _mm_set1_epi16(static_cast<int16_t>(2 * ((s >> 3) & 7) + 1)));
    }
  }
};

// What layout.h and product256.h want to know about a format whose panel keeps blocks whole.
template <typename Iq>
struct Rows : Iq {
  static constexpr int kBytes = weight::shape_of(Iq::kType).bytes;
  static constexpr int kMain = kPanelRows * kBytes, kTail = 0;
  static constexpr Field kFields[] = {{0, kBytes, kBytes, 0, false}};
  static constexpr bool kSigned = true;
  static constexpr int kGroup = 16, kChunk = 256;
  static constexpr Pairs kPairs = Pairs::kNone;
};

// The sums of eight vectors' lanes.
inline __m256i sum_lanes(const __m256i* v) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}

// Signs go to the activations where the type keeps them apart.
template <bool kHasSigns>
inline __m256i row_sums(const RowBlock& row, const int8_t* q) {
  __m256i sum = _mm256_setzero_si256();
  for (int g = 0; g < 8; ++g) {
    const __m256i a = kHasSigns ? negate(load(q + 32 * g), row.minus[g])
                                : _mm256_sign_epi8(load(q + 32 * g), row.v[g]);
    const __m256i size = kHasSigns ? row.v[g] : _mm256_abs_epi8(row.v[g]);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(size, a), row.scale[g]));
  }
  return sum;
}

template <typename Iq>
void gemv_rows(const ProductArgs& args) {
  using Format = Rows<Iq>;
  const Activations& a = args.a;
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const uint8_t* panel = args.w.data + p * args.w.panel_bytes;
    for (int64_t r = args.row_begin; r < args.row_end; ++r) {
      __m256 acc = _mm256_setzero_ps();
      for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
        const uint8_t* block = panel + b * Format::kMain;
        const int8_t* q = a.q + r * a.q_stride + 256 * b;
        __m256i sums[8];
        uint16_t d[8];
        for (int o = 0; o < 8; ++o) {
          RowBlock row;
          Iq::unpack(block + o * Format::kBytes, &row);
          sums[o] = row_sums<Iq::kHasSigns>(row, q);
          d[o] = row.d;
        }
        const __m256 scale = _mm256_mul_ps(halves(d), _mm256_set1_ps(Iq::kFactor));
        const __m256 da = _mm256_set1_ps(a.d[r * a.d_stride + b]);
        acc = _mm256_fmadd_ps(_mm256_mul_ps(scale, da), _mm256_cvtepi32_ps(sum_lanes(sums)), acc);
      }
      store_outputs(args, r, p * kPanelRows, acc);
    }
  }
}

template <typename Iq>
void unpack_rows(const PackedMatrix& w, int64_t p, int64_t b, Unpacked256* u) {
  using Format = Rows<Iq>;
  const uint8_t* block = w.data + p * w.panel_bytes + b * Format::kMain;
  RowBlock rows[8];
  uint16_t d[8];
  for (int o = 0; o < 8; ++o) {
    Iq::unpack(block + o * Format::kBytes, &rows[o]);
    d[o] = rows[o].d;
  }
  u->s.d = _mm256_mul_ps(halves(d), _mm256_set1_ps(Iq::kFactor));
  for (int g = 0; g < 8; ++g) {
    __m256 lanes[8];
    for (int o = 0; o < 8; ++o) {
      const __m256i v = Iq::kHasSigns ? negate(rows[o].v[g], rows[o].minus[g]) : rows[o].v[g];
      lanes[o] = _mm256_castsi256_ps(v);
    }
    transpose8(lanes);
    for (int i = 0; i < 8; ++i) u->w[8 * g + i] = _mm256_castps_si256(lanes[i]);
    // Every lane of a half holds the same scale twice: lane 0 of a row is that of the first 16
    // values, lane 4 that of the others.
    for (int o = 0; o < 8; ++o) lanes[o] = _mm256_castsi256_ps(rows[o].scale[g]);
    transpose8(lanes);
    u->s.scale[2 * g] = _mm256_castps_si256(lanes[0]);
    u->s.scale[2 * g + 1] = _mm256_castps_si256(lanes[4]);
  }
}

template <typename Iq>
LinearKernels kernels_iq(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k = layout256<Rows<Iq>>(layout, gemv_name, gemm_name);
  k.gemv = gemv_rows<Iq>;
  k.gemm = gemm256<Rows<Iq>, unpack_rows<Iq>>;
  return k;
}

}  // namespace

void install_linear_iq(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kIQ1_S] = kernels_iq<IQ1_S>("iq1_s_8rows", "avx2.gemv_iq1_s", "avx2.gemm_iq1_s");
  t[weight::kIQ1_M] = kernels_iq<IQ1_M>("iq1_m_8rows", "avx2.gemv_iq1_m", "avx2.gemm_iq1_m");
  t[weight::kIQ2_XXS] =
      kernels_iq<IQ2_XXS>("iq2_xxs_8rows", "avx2.gemv_iq2_xxs", "avx2.gemm_iq2_xxs");
  t[weight::kIQ2_XS] = kernels_iq<IQ2_XS>("iq2_xs_8rows", "avx2.gemv_iq2_xs", "avx2.gemm_iq2_xs");
  t[weight::kIQ2_S] = kernels_iq<IQ2_S>("iq2_s_8rows", "avx2.gemv_iq2_s", "avx2.gemm_iq2_s");
  t[weight::kIQ3_XXS] =
      kernels_iq<IQ3_XXS>("iq3_xxs_8rows", "avx2.gemv_iq3_xxs", "avx2.gemm_iq3_xxs");
  t[weight::kIQ3_S] = kernels_iq<IQ3_S>("iq3_s_8rows", "avx2.gemv_iq3_s", "avx2.gemm_iq3_s");
}

}  // namespace okibi::cpu::avx2
