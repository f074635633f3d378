// Products with formats whose blocks have 32 values, for any Format that gives:
//   kType, kFields, kMain, kTail   the layout (layout.h); kMain is that of one block of the file
//   kSigned    codes are int8; otherwise unsigned
//   kWidth     products of four codes that a 16-bit lane can add up: each adds at most
//              2 * max|code| * 127, and 32767 must hold the sum
//   kOffset    subtracted from every code
//   kHasMin, kPer16                as in kernel_table.h (Q4_1, NVFP4)
//   codes(main, part, w)           the 8 vectors of the part'th 32 values: w[i] has values 4i..4i+3
//                                  of eight rows
//   scales(tail, part, s)
// Activations are broadcast four codes at a time; a lane is an output row, so sums never cross
// lanes.
#pragma once

#include "cpu/kernels/avx2/layout.h"
#include "cpu/kernels/avx2/products.h"
#include "cpu/kernels/avx2/simd.h"

namespace okibi::cpu::avx2 {
namespace {

struct Scales32 {
  __m256 d, second;  // `second`: the minimum, or the scale of values 16..31
};

// v[r] = sum of 4 * n_vectors products.
template <typename Format, int R>
inline void dot(const __m256i* w, int n_vectors, const int8_t* q, int64_t q_stride, __m256i* v) {
  constexpr int kStep = Format::kWidth < 4 ? Format::kWidth : 4;
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) v[r] = _mm256_setzero_si256();
  if constexpr (Format::kWidth >= 8) {
    for (int i = 0; i < n_vectors; ++i) {
      add_products<Format::kSigned, R>(w[i], q + 4 * i, q_stride, v);
    }
    for (int r = 0; r < R; ++r) v[r] = _mm256_madd_epi16(v[r], ones);
  } else {
    for (int i = 0; i < n_vectors; i += kStep) {
      __m256i sums[R];
      for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
      for (int j = i; j < i + kStep; ++j) {
        add_products<Format::kSigned, R>(w[j], q + 4 * j, q_stride, sums);
      }
      for (int r = 0; r < R; ++r) {
        v[r] = _mm256_add_epi32(v[r], _mm256_madd_epi16(sums[r], ones));
        keep(v[r]);
      }
    }
  }
}

// One block of 32 of R rows: q, d and sums32 point at the first row's values of the block.
template <typename Format, int R>
inline void add_block(const __m256i* w, const Scales32& s, const int8_t* q, const float* d,
                      const int32_t* sums32, const Activations& a, __m256* acc) {
  __m256i v[R];
  if constexpr (Format::kPer16) {
    for (int half = 0; half < 2; ++half) {
      const __m256 scale = half == 0 ? s.d : s.second;
      dot<Format, R>(w + 4 * half, 4, q + 16 * half, a.q_stride, v);
      for (int r = 0; r < R; ++r) {
        acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(v[r]), scale),
                                 _mm256_set1_ps(d[r * a.d_stride]), acc[r]);
      }
    }
    return;
  }
  dot<Format, R>(w, 8, q, a.q_stride, v);
  for (int r = 0; r < R; ++r) {
    const float da = d[r * a.d_stride];
    const int32_t sum = sums32[r * a.d_stride];
    if constexpr (Format::kOffset != 0) {
      v[r] = _mm256_sub_epi32(v[r], _mm256_set1_epi32(Format::kOffset * sum));
    }
    acc[r] =
        _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(v[r]), s.d), _mm256_set1_ps(da), acc[r]);
    if constexpr (Format::kHasMin) {
      acc[r] = _mm256_fmadd_ps(s.second, _mm256_set1_ps(da * static_cast<float>(sum)), acc[r]);
    }
  }
}

template <typename Format>
struct Panel32 {
  static constexpr int kParts = weight::shape_of(Format::kType).values / 32;
  static constexpr int kMainPart = Format::kMain / kParts;
  const uint8_t* main;
  const uint8_t* tail;

  Panel32(const PackedMatrix& w, int64_t panel)
      : main(w.data + panel * w.panel_bytes),
        tail(main + n_blocks<Format>(w.n_in) * Format::kMain) {}
  // `b` counts blocks of 32.
  void unpack(int64_t b, __m256i* w, Scales32* s) const {
    Format::codes(main + b * kMainPart, w);
    Format::scales(tail + b / kParts * Format::kTail, static_cast<int>(b % kParts), s);
  }
};

template <typename Format>
void gemv32(const ProductArgs& args) {
  const Activations& a = args.a;
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const Panel32<Format> panel(args.w, p);
    for (int64_t r = args.row_begin; r < args.row_end; ++r) {
      const int8_t* q = a.q + r * a.q_stride;
      const float* d = a.d + r * a.d_stride;
      const int32_t* sums = a.sums32 + r * a.d_stride;
      __m256 acc = _mm256_setzero_ps();
      for (int64_t b = 0; b < args.w.n_in / 32; ++b) {
        __m256i w[8];
        Scales32 s;
        panel.unpack(b, w, &s);
        add_block<Format, 1>(w, s, q + 32 * b, d + b, sums + b, a, &acc);
      }
      store_outputs(args, r, p * kPanelRows, acc);
    }
  }
}

// Blocks that are unpacked together and then meet all rows of a group: 2 KiB of codes, which stay
// in the first-level cache, and enough work per load of the sums.
constexpr int kUnpackedBlocks = 8;
// Rows of a group: unpacking costs about two operations per vector, a row two to four.
constexpr int64_t kRowGroup32 = 32;

template <typename Format, int R>
void tile32(const __m256i (*w)[8], const Scales32* s, int64_t n, int64_t row, int64_t b,
            const Activations& a, __m256* sums) {
  __m256 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = sums[r];
  const int8_t* q = a.q + row * a.q_stride + 32 * b;
  const float* d = a.d + row * a.d_stride + b;
  const int32_t* sums32 = a.sums32 + row * a.d_stride + b;
  for (int64_t i = 0; i < n; ++i) {
    add_block<Format, R>(w[i], s[i], q + 32 * i, d + i, sums32 + i, a, acc);
  }
  for (int r = 0; r < R; ++r) sums[r] = acc[r];
}

template <typename Format>
void gemm32(const ProductArgs& args) {
  const int64_t n_blocks32 = args.w.n_in / 32;
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const Panel32<Format> panel(args.w, p);
    for (int64_t row = args.row_begin; row < args.row_end; row += kRowGroup32) {
      const int64_t left = args.row_end - row, n_rows = left < kRowGroup32 ? left : kRowGroup32;
      __m256 acc[kRowGroup32];
      for (int64_t r = 0; r < n_rows; ++r) acc[r] = _mm256_setzero_ps();
      for (int64_t b = 0; b < n_blocks32; b += kUnpackedBlocks) {
        const int64_t n = n_blocks32 - b < kUnpackedBlocks ? n_blocks32 - b : kUnpackedBlocks;
        __m256i w[kUnpackedBlocks][8];
        Scales32 s[kUnpackedBlocks];
        for (int64_t i = 0; i < n; ++i) panel.unpack(b + i, w[i], &s[i]);
        int64_t r = 0;
        // Four rows: 4 sums of each kind, the codes, their magnitudes and two temporaries fit 16
        // registers.
        for (; r + 4 <= n_rows; r += 4) tile32<Format, 4>(w, s, n, row + r, b, args.a, acc + r);
        for (; r < n_rows; ++r) tile32<Format, 1>(w, s, n, row + r, b, args.a, acc + r);
      }
      for (int64_t r = 0; r < n_rows; ++r) store_outputs(args, row + r, p * kPanelRows, acc[r]);
    }
  }
}

template <typename Format>
LinearKernels kernels32(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B32;
  k.panel_bytes = panel_bytes<Format>;
  k.pack = pack<Format>;
  k.unpack = unpack<Format>;
  k.gemv = gemv32<Format>;
  k.gemv_name = gemv_name;
  k.gemm = gemm32<Format>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = 2;
  return k;
}

}  // namespace
}  // namespace okibi::cpu::avx2
