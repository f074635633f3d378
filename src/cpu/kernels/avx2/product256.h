// Products with super-blocks of 256 values, for any Format that gives:
//   kType, kFields, kMain, kTail   the layout (layout.h)
//   kSigned    codes are int8; otherwise unsigned
//   kWidth     products of four codes that a 16-bit lane can add up (product32.h)
//   kGroup     values under one integer scale: 16, 32 or 256
//   kChunk     values that codes() unpacks at once, a multiple of kGroup where that is below 256
//   kPairs     what Scales256::pair is for
//   codes(main, chunk, w)          w[i] has values 4i .. 4i + 3 of the chunk, of eight rows
//   scales(main, tail, s)
// Lanes are output rows. The 16-bit sums of a group meet its scale in the multiplication that also
// widens them, so a super-block costs one multiplication per group and row.
#pragma once

#include "cpu/kernels/avx2/layout.h"
#include "cpu/kernels/avx2/products.h"
#include "cpu/kernels/avx2/simd.h"

namespace okibi::cpu::avx2 {
namespace {

// Factors of the sums of 16 activation codes: lanes of pair[i] hold those for sums 2i and 2i + 1.
enum class Pairs {
  kNone,
  kOffset,  // integer scale times what was left in the codes, subtracted from I
  kMinima   // the minima, making J
};

struct Scales256 {
  __m256i scale[16];  // per group, in both halves of every lane
  __m256i pair[8];
  __m256 d, m;
};

template <typename Format>
constexpr int kGroupsPerChunk =
    Format::kGroup < Format::kChunk ? Format::kChunk / Format::kGroup : 1;

// Adds a chunk of R rows to the integer sums; `scale` points at its first group's.
template <typename Format, int R>
inline void add_chunk(const __m256i* w, const __m256i* scale, const int8_t* q, int64_t q_stride,
                      __m256i* sums) {
  constexpr int kGroups = kGroupsPerChunk<Format>;
  constexpr int kVectors = Format::kChunk / kGroups / 4;  // of a group in this chunk
  constexpr int kWidth = Format::kWidth < kVectors ? Format::kWidth : kVectors;
  for (int g = 0; g < kGroups; ++g) {
    for (int i = g * kVectors; i < (g + 1) * kVectors; i += kWidth) {
      __m256i narrow[R];
      for (int r = 0; r < R; ++r) narrow[r] = _mm256_setzero_si256();
      for (int j = i; j < i + kWidth; ++j) {
        add_products<Format::kSigned, R>(w[j], q + 4 * j, q_stride, narrow);
      }
      for (int r = 0; r < R; ++r) {
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(narrow[r], scale[g]));
        keep(sums[r]);
      }
    }
  }
}

// Brings the integer sums of a super-block together with its scales.
template <Pairs kPairs, int R>
inline void finish_block(const Scales256& s, const __m256i* sums, const int16_t* sums16,
                         const float* d, const Activations& a, __m256* acc) {
  for (int r = 0; r < R; ++r) {
    __m256i total = sums[r], minima = _mm256_setzero_si256();
    if constexpr (kPairs != Pairs::kNone) {
      for (int i = 0; i < 8; ++i) {
        const __m256i pair_sums = broadcast4(sums16 + r * a.sums16_stride + 2 * i);
        minima = _mm256_add_epi32(minima, _mm256_madd_epi16(s.pair[i], pair_sums));
        keep(minima);
      }
    }
    if constexpr (kPairs == Pairs::kOffset) total = _mm256_sub_epi32(total, minima);
    const __m256 da = _mm256_set1_ps(d[r * a.d_stride]);
    acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(s.d, da), _mm256_cvtepi32_ps(total), acc[r]);
    if constexpr (kPairs == Pairs::kMinima) {
      acc[r] = _mm256_fnmadd_ps(_mm256_mul_ps(s.m, da), _mm256_cvtepi32_ps(minima), acc[r]);
    }
  }
}

template <typename Format>
struct Panel256 {
  const uint8_t* main;
  const uint8_t* tail;
  Panel256(const PackedMatrix& w, int64_t panel)
      : main(w.data + panel * w.panel_bytes),
        tail(main + n_blocks<Format>(w.n_in) * Format::kMain) {}
};

template <typename Format>
void gemv256(const ProductArgs& args) {
  const Activations& a = args.a;
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const Panel256<Format> panel(args.w, p);
    for (int64_t r = args.row_begin; r < args.row_end; ++r) {
      __m256 acc = _mm256_setzero_ps();
      for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
        const uint8_t* main = panel.main + b * Format::kMain;
        const int8_t* q = a.q + r * a.q_stride + 256 * b;
        Scales256 s;
        Format::scales(main, panel.tail + b * Format::kTail, &s);
        __m256i sum = _mm256_setzero_si256();
        for (int chunk = 0; chunk < 256 / Format::kChunk; ++chunk) {
          __m256i w[Format::kChunk / 4];
          Format::codes(main, chunk, w);
          const int group = Format::kGroup < Format::kChunk
                                ? chunk * kGroupsPerChunk<Format>
                                : chunk * Format::kChunk / Format::kGroup;
          add_chunk<Format, 1>(w, s.scale + group, q + chunk * Format::kChunk, a.q_stride, &sum);
        }
        finish_block<Format::kPairs, 1>(s, &sum, a.sums16 + r * a.sums16_stride + 16 * b,
                                        a.d + r * a.d_stride + b, a, &acc);
      }
      store_outputs(args, r, p * kPanelRows, acc);
    }
  }
}

// A super-block unpacked: 2 KiB of codes that all rows of a group meet in the first-level cache.
struct Unpacked256 {
  __m256i w[64];
  Scales256 s;
};

// The same format with the whole super-block as one chunk.
template <typename Format>
struct Whole : Format {
  static constexpr int kChunk = 256;
};

template <typename Format, int R>
void tile256(const Unpacked256& u, int64_t row, int64_t b, const Activations& a, __m256* acc) {
  __m256i sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
  const int8_t* q = a.q + row * a.q_stride + 256 * b;
  add_chunk<Whole<Format>, R>(u.w, u.s.scale, q, a.q_stride, sums);
  finish_block<Format::kPairs, R>(u.s, sums, a.sums16 + row * a.sums16_stride + 16 * b,
                                  a.d + row * a.d_stride + b, a, acc);
}

// Rows that share one unpacking, which costs about as much as two rows.
constexpr int64_t kRowGroup256 = 32;

// `Unpack(w, panel, b, u)` brings super-block b of a panel to the common form.
template <typename Format, void (*Unpack)(const PackedMatrix&, int64_t, int64_t, Unpacked256*)>
void gemm256(const ProductArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    for (int64_t row = args.row_begin; row < args.row_end; row += kRowGroup256) {
      const int64_t left = args.row_end - row, n_rows = left < kRowGroup256 ? left : kRowGroup256;
      __m256 acc[kRowGroup256];
      for (int64_t r = 0; r < n_rows; ++r) acc[r] = _mm256_setzero_ps();
      for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
        Unpacked256 u;
        Unpack(args.w, p, b, &u);
        int64_t r = 0;
        // Four rows: two sums each, codes, magnitudes, scale and temporaries fit 16 registers.
        for (; r + 4 <= n_rows; r += 4) tile256<Format, 4>(u, row + r, b, args.a, acc + r);
        for (; r < n_rows; ++r) tile256<Format, 1>(u, row + r, b, args.a, acc + r);
      }
      for (int64_t r = 0; r < n_rows; ++r) store_outputs(args, row + r, p * kPanelRows, acc[r]);
    }
  }
}

template <typename Format>
void unpack256(const PackedMatrix& w, int64_t p, int64_t b, Unpacked256* u) {
  const Panel256<Format> panel(w, p);
  const uint8_t* main = panel.main + b * Format::kMain;
  for (int chunk = 0; chunk < 256 / Format::kChunk; ++chunk) {
    Format::codes(main, chunk, u->w + chunk * Format::kChunk / 4);
  }
  Format::scales(main, panel.tail + b * Format::kTail, &u->s);
}

// Layout and names; the caller sets gemv and gemm.
template <typename Format>
LinearKernels layout256(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B256;
  k.panel_bytes = panel_bytes<Format>;
  k.pack = pack<Format>;
  k.unpack = unpack<Format>;
  k.gemv_name = gemv_name;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = 2;
  return k;
}

template <typename Format>
LinearKernels kernels256(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k = layout256<Format>(layout, gemv_name, gemm_name);
  k.gemv = gemv256<Format>;
  k.gemm = gemm256<Format, unpack256<Format>>;
  return k;
}

}  // namespace
}  // namespace okibi::cpu::avx2
