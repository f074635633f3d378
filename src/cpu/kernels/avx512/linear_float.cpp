// Products of float activations with F32, F16 and BF16 weights. A panel holds for every k the
// weights of 16 rows side by side. Each output is one serial chain of multiply-adds over k, as
// kernel_table.h asks; rows and panels side by side keep the multipliers busy.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

struct F32 {
  static constexpr int64_t kBytes = 4;
  static __m512 weights(const uint8_t* p) { return _mm512_loadu_ps(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static __m512 weights(const uint8_t* p) { return load_f16(p); }
};
struct BF16 {
  static constexpr int64_t kBytes = 2;
  static __m512 weights(const uint8_t* p) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

template <class T>
int64_t panel_bytes(int64_t n_in) {
  return round_up(n_in * kPanelRows * T::kBytes, 64);
}

template <class T>
void pack(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t k = 0; k < n_in; ++k) {
      std::memcpy(panel + (k * kPanelRows + r) * T::kBytes, rows + (r * n_in + k) * T::kBytes,
                  T::kBytes);
    }
  }
}
template <class T>
void unpack(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for (int64_t k = 0; k < n_in; ++k) {
    std::memcpy(file_row + k * T::kBytes, panel + (k * kPanelRows + row) * T::kBytes, T::kBytes);
  }
}

// Covers the latency of memory; each of up to eight panels is a stream of its own.
constexpr int64_t kPrefetchBytes = 1024;

// Rows [row, row + kRows) of panels [panel, panel + kPanels).
template <class T, int kRows, int kPanels>
void tile(const ProductArgs& args, int64_t row, int64_t panel) {
  constexpr int64_t kStep = kPanelRows * T::kBytes;  // bytes per k
  const int64_t n_in = args.w.n_in, panel_bytes = args.w.panel_bytes, stride = args.a.x_stride;
  const uint8_t* w = args.w.data + panel * panel_bytes;
  const float* x = args.a.x + row * stride;
  __m512 acc[kRows][kPanels];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < n_in; ++k, w += kStep) {
    if (k % (64 / kStep) == 0) {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) prefetch(w + p * panel_bytes + kPrefetchBytes);
    }
    __m512 weights[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) weights[p] = T::weights(w + p * panel_bytes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 a = broadcast(x + r * stride + k);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_fmadd_ps(a, weights[p], acc[r][p]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) {
    const __mmask16 mask = panel_mask(args, panel + p);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel + p, mask, acc[r][p]);
  }
}

// All panels for kRows rows, kPanels at a time, then fewer.
template <class T, int kRows, int kPanels>
void panels(const ProductArgs& args, int64_t row, int64_t panel) {
  for (; panel + kPanels <= args.panel_end; panel += kPanels) {
    tile<T, kRows, kPanels>(args, row, panel);
  }
  if constexpr (kPanels > 1) {
    if (panel < args.panel_end) panels<T, kRows, kPanels / 2>(args, row, panel);
  }
}

// One row needs eight chains to hide the latency of its multiply-adds.
template <class T>
void gemv(const ProductArgs& args) {
  int64_t row = args.row_begin;
  for (; row + 4 <= args.row_end; row += 4) panels<T, 4, 4>(args, row, args.panel_begin);
  for (; row + 2 <= args.row_end; row += 2) panels<T, 2, 4>(args, row, args.panel_begin);
  if (row < args.row_end) panels<T, 1, 8>(args, row, args.panel_begin);
}

// Twelve rows by two panels: 24 sums, 2 vectors of weights, 1 broadcast of the 32 registers.
template <class T>
void gemm(const ProductArgs& args) {
  for (int64_t panel = args.panel_begin; panel < args.panel_end; panel += 2) {
    ProductArgs pair = args;
    pair.panel_begin = panel;
    pair.panel_end = min64(panel + 2, args.panel_end);
    int64_t row = args.row_begin;
    for (; row + 12 <= args.row_end; row += 12) panels<T, 12, 2>(pair, row, panel);
    if (row + 6 <= args.row_end) {
      panels<T, 6, 2>(pair, row, panel);
      row += 6;
    }
    if (row + 4 <= args.row_end) {
      panels<T, 4, 2>(pair, row, panel);
      row += 4;
    }
    for (; row < args.row_end; ++row) panels<T, 1, 2>(pair, row, panel);
  }
}

template <class T>
LinearKernels kernels(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kF32;
  k.panel_bytes = panel_bytes<T>;
  k.pack = pack<T>;
  k.unpack = unpack<T>;
  k.gemv = gemv<T>;
  k.gemv_name = gemv_name;
  k.gemm = gemm<T>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = 5;
  return k;
}

}  // namespace

namespace avx512 {

void install_float(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kF32] = kernels<F32>("f32_x16", "avx512.gemv_f32", "avx512.gemm_f32");
  t[weight::kF16] = kernels<F16>("f16_x16", "avx512.gemv_f16", "avx512.gemm_f16");
  t[weight::kBF16] = kernels<BF16>("bf16_x16", "avx512.gemv_bf16", "avx512.gemm_bf16");
  table.linear_f32[weight::kF32] = t[weight::kF32];
  table.linear_f32[weight::kF16] = t[weight::kF16];
  table.linear_f32[weight::kBF16] = t[weight::kBF16];
}

}  // namespace avx512
}  // namespace okibi::cpu
