// What every x16 layout of the AVX-512 and AMX levels shares: a panel is 16 output rows, a vector
// of codes is 4 consecutive k of each of them, so one 32-bit lane is one output. Loads, the exact
// float conversion, the final store and the cutting of rows. docs/kernels.md draws the layouts.
// Everything has internal linkage: no weak symbol may leave an instruction-set file.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cpu/kernel_table.h"

namespace okibi::cpu {
namespace {
namespace x16 {

constexpr int64_t kPanelRows = 16;

// Bits of 1.5 * 2^23. An integer |v| < 2^22 added to them is the float 1.5 * 2^23 + v, so a dot
// product that starts here ends as a float and needs no conversion.
constexpr int32_t kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

inline int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}
inline int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

inline __m512i load(const void* p) {
  return _mm512_loadu_si512(p);
}
inline void store(void* p, __m512i v) {
  _mm512_storeu_si512(p, v);
}
// 16 binary16 scales. The pointer is 32-byte aligned by every layout.
inline __m512 load_f16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}
// Four int8 (two int16) of an activation row in every lane.
inline __m512i broadcast32(const void* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return _mm512_set1_epi32(v);
}
inline __m512 broadcast(const float* p) {
  return _mm512_set1_ps(*p);
}
inline __m512i low_nibbles(__m512i v) {
  return _mm512_and_si512(v, _mm512_set1_epi8(15));
}
inline __m512i high_nibbles(__m512i v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
// (a & mask) | b and mask ? a : b as one operation each.
inline __m512i and_or(__m512i a, __m512i mask, __m512i b) {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}
inline __m512i select_bits(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}

// GCC's tile intrinsics do not tell the compiler that they read memory.
inline void settle_memory() {
  __asm__ volatile("" ::: "memory");
}

inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

// The valid outputs of panel `panel`.
inline __mmask16 panel_mask(const ProductArgs& args, int64_t panel) {
  const int64_t n = args.w.n_out - panel * kPanelRows;
  return n >= kPanelRows ? __mmask16(0xffff) : static_cast<__mmask16>((1u << n) - 1);
}

// The end of a product: times the tensor's scale (exact when it is 1), then stored or added.
inline void finish(const ProductArgs& args, int64_t row, int64_t panel, __mmask16 mask,
                   __m512 acc) {
  float* out = args.out + row * args.out_stride + panel * kPanelRows;
  __m512 result = _mm512_mul_ps(acc, _mm512_set1_ps(args.w.scale));
  if (args.accumulate) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), result);
  _mm512_mask_storeu_ps(out, mask, result);
}

// Runs of packed bytes that the next step of a walk reads, to be asked for in even parts while this
// step computes: a panel is read once per call and comes from memory.
struct Ahead {
  const uint8_t* from[4] = {};
  int64_t bytes[4] = {};
  int n = 0;
  void add(const uint8_t* p, int64_t n_bytes) {
    from[n] = p;
    bytes[n++] = n_bytes;
  }
};
inline void prefetch_part(const Ahead& ahead, int64_t part, int64_t n_parts) {
  for (int i = 0; i < ahead.n; ++i) {
    const int64_t end = ahead.bytes[i], step = 64 * n_parts;
    for (int64_t at = 64 * part; at < end; at += step) prefetch(ahead.from[i] + at);
  }
}

// 16 x 16 transposition of 32-bit lanes.
inline void transpose16(__m512i* v) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[4i + j] holds column j of rows 4i .. 4i + 3, and in its further quarters columns j + 4, ...
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[j + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(t[j + 8], t[j + 12], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(t[j], t[j + 4], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(t[j + 8], t[j + 12], 0xdd);
    v[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    v[j + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
    v[j + 8] = _mm512_shuffle_i32x4(a, b, 0xdd);
    v[j + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
}

// Columns of v to rows `stride` apart.
template <class U>
void store_transposed(__m512i* v, U* to, int64_t stride) {
  transpose16(v);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store(to + i * stride, v[i]);
}

// Where the sums of up to two panels go.
struct Output {
  float* at;
  int64_t stride;
  float scale;
  bool accumulate;
  __mmask16 mask[2];
};
inline Output output_at(const ProductArgs& args, int64_t row, int64_t panel, int n_panels) {
  return {args.out + row * args.out_stride + panel * kPanelRows,
          args.out_stride,
          args.w.scale,
          args.accumulate,
          {panel_mask(args, panel), n_panels == 2 ? panel_mask(args, panel + 1) : __mmask16(0)}};
}
inline void finish(const Output& out, int64_t r, int p, __m512 acc) {
  float* at = out.at + r * out.stride + p * kPanelRows;
  __m512 result = _mm512_mul_ps(acc, _mm512_set1_ps(out.scale));
  if (out.accumulate) result = _mm512_add_ps(_mm512_maskz_loadu_ps(out.mask[p], at), result);
  _mm512_mask_storeu_ps(at, out.mask[p], result);
}

// Outputs are written once and lie far apart: without this every store waits for memory.
inline void prefetch_outputs(const Output& out, int64_t row, int64_t n) {
  for (int64_t r = row; r < row + n; ++r) {
    prefetch(out.at + r * out.stride);
    prefetch(out.at + r * out.stride + kPanelRows);
  }
}

// Float sums per row that wait in scratch between the chunks of two panels.
constexpr int64_t kAccFloats = 2 * kPanelRows;

// Rows that gemm takes at a time: their int8 activations fill half of a 2 MiB second-level cache,
// while the sums of two panels pass through it.
constexpr int64_t kMaxRows = 512;
inline int64_t rows_at_once(int64_t n_in) {
  const int64_t fit = (int64_t{1} << 20) / n_in / 32 * 32;
  return max64(32, min64(kMaxRows, fit));
}

// Tables of activation scales and sums hold rows next to each other; tiles read up to 15 rows past
// the last, which are zero.
inline int64_t table_rows(int64_t n_in) {
  return rows_at_once(n_in) + 16;
}

// Rows that gemv takes at a time: with four, a vector of codes is used four times and the
// accumulators still leave room for it.
constexpr int kGemvRows = 4;

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
