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
  __m256i v[8];      // signed values
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
// Rows of four values go to vectors by way of memory; the register keeps compilers from inserting
// them one by one instead, which takes more operations and all of them on one port.
inline void copy4(const uint8_t* from, uint8_t* to) {
  uint32_t v;
  std::memcpy(&v, from, sizeof v);
  asm("" : "+r"(v));
  std::memcpy(to, &v, sizeof v);
}

// Byte k of `bytes` over values 8k .. 8k + 7.
inline __m256i spread8(uint32_t bytes) {
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                         2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  return _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bytes)), order);
}

// Negates the values whose bit is set.
inline __m256i with_signs(__m256i v, uint32_t signs) {
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i negative = _mm256_cmpeq_epi8(_mm256_and_si256(spread8(signs), bit), bit);
  return _mm256_sub_epi8(_mm256_xor_si256(v, negative), negative);
}

// Four 7-bit sign indices to their sign bytes.
inline uint32_t sign_bytes(uint32_t w) {
  return kKSigns[w & 127] | static_cast<uint32_t>(kKSigns[(w >> 7) & 127]) << 8 |
         static_cast<uint32_t>(kKSigns[(w >> 14) & 127]) << 16 |
         static_cast<uint32_t>(kKSigns[(w >> 21) & 127]) << 24;
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

// Each format gives kType, kBytes, kFactor (what d is multiplied by) and kWidth (product32.h).
struct IQ2_XXS {
  static constexpr int kType = weight::kIQ2_XXS, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 2 + 8 * g;
      const uint32_t w = read32(q + 4);
      const __m256i v = _mm256_set_epi64x(row8(kIq2XxsGrid[q[3]]), row8(kIq2XxsGrid[q[2]]),
                                          row8(kIq2XxsGrid[q[1]]), row8(kIq2XxsGrid[q[0]]));
      out->v[g] = with_signs(v, sign_bytes(w));
      out->scale[g] = same_scale(static_cast<int>(2 * (w >> 28) + 1));
    }
  }
};

struct IQ2_XS {
  static constexpr int kType = weight::kIQ2_XS, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      uint64_t w;
      std::memcpy(&w, b + 2 + 8 * g, sizeof w);
      const __m256i v =
          _mm256_set_epi64x(row8(kIq2XsGrid[(w >> 48) & 511]), row8(kIq2XsGrid[(w >> 32) & 511]),
                            row8(kIq2XsGrid[(w >> 16) & 511]), row8(kIq2XsGrid[w & 511]));
      const uint32_t signs = kKSigns[(w >> 9) & 127] |
                             static_cast<uint32_t>(kKSigns[(w >> 25) & 127]) << 8 |
                             static_cast<uint32_t>(kKSigns[(w >> 41) & 127]) << 16 |
                             static_cast<uint32_t>(kKSigns[w >> 57]) << 24;
      out->v[g] = with_signs(v, signs);
    }
    place_scales(odd_nibbles(b + 66), out->scale);
  }
};

struct IQ2_S {
  static constexpr int kType = weight::kIQ2_S, kWidth = 2;  // 43
  static constexpr float kFactor = 0.125f;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* q = b + 2 + 4 * g;
      const uint32_t high = b[66 + g];
      const __m256i v = _mm256_set_epi64x(row8(kIq2SGrid[q[3] | ((high << 2) & 0x300)]),
                                          row8(kIq2SGrid[q[2] | ((high << 4) & 0x300)]),
                                          row8(kIq2SGrid[q[1] | ((high << 6) & 0x300)]),
                                          row8(kIq2SGrid[q[0] | ((high << 8) & 0x300)]));
      out->v[g] = with_signs(v, read32(b + 34 + 4 * g));
    }
    place_scales(odd_nibbles(b + 74), out->scale);
  }
};

struct IQ3_XXS {
  static constexpr int kType = weight::kIQ3_XXS, kWidth = 2;  // 62
  static constexpr float kFactor = 0.25f;
  static void unpack(const uint8_t* b, RowBlock* out) {
    out->d = read16(b);
    alignas(32) uint8_t values[256];
#pragma GCC unroll 16
    for (int n = 0; n < 64; ++n) copy4(kIq3XxsGrid[b[2 + n]], values + 4 * n);
    for (int g = 0; g < 8; ++g) {
      const uint32_t w = read32(b + 66 + 4 * g);
      out->v[g] = with_signs(load(values + 32 * g), sign_bytes(w));
      out->scale[g] = same_scale(static_cast<int>(2 * (w >> 28) + 1));
    }
  }
};

struct IQ3_S {
  static constexpr int kType = weight::kIQ3_S, kWidth = 4;  // 15
  static constexpr float kFactor = 1.0f;
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
    for (int n = 0; n < 64; ++n) copy4(kIq3SGrid[index[n]], values + 4 * n);
    for (int g = 0; g < 8; ++g) {
      out->v[g] = with_signs(load(values + 32 * g), read32(b + 74 + 4 * g));
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

inline __m256i row_sums(const RowBlock& row, const int8_t* q) {
  __m256i sum = _mm256_setzero_si256();
  for (int g = 0; g < 8; ++g) {
    const __m256i a = _mm256_sign_epi8(load(q + 32 * g), row.v[g]);
    const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(row.v[g]), a);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, row.scale[g]));
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
          sums[o] = row_sums(row, q);
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
    for (int o = 0; o < 8; ++o) lanes[o] = _mm256_castsi256_ps(rows[o].v[g]);
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
