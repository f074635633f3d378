// Products of float activations: with F32, F16 and BF16 weights as they are, and with every other
// type (activations f32 mode) through exact dequantisation of 16 rows at a time. One fused
// multiply-add per value in order of k, so every tiling gives the same bits.
#include "cpu/canonical.h"
#include "cpu/kernels/avx2/linear.h"
#include "cpu/kernels/avx2/simd.h"
#include "cpu/weight_types.h"

namespace okibi::cpu::avx2 {
namespace {

// Two vectors of outputs: with six activation rows 12 sums, two weight vectors and one activation
// fill 15 of 16 registers, and 12 independent chains cover latency 4 at two per cycle.
constexpr int kFloatPanelRows = 16;
constexpr int kTileRows = 6;

struct F32 {
  static constexpr int kBytes = 4;
  static __m256 load8(const uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
};
struct F16 {
  static constexpr int kBytes = 2;
  static __m256 load8(const uint8_t* p) { return halves(p); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static __m256 load8(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
  }
};

// R rows by P panels: panel p's value k of 16 outputs is at w + p * panel_bytes + 16 * kBytes * k.
template <typename Type, int R, int P>
void tile(const ProductArgs& args, const uint8_t* w, int64_t panel_bytes, int64_t row,
          int64_t first_output) {
  __m256 acc[R][2 * P];
  for (auto& sums : acc) {
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
  }
  const float* x = args.a.x + row * args.a.x_stride;
  for (int64_t k = 0; k < args.w.n_in; ++k) {
    for (int p = 0; p < P; ++p) {
      const uint8_t* values = w + p * panel_bytes + k * kFloatPanelRows * Type::kBytes;
      const __m256 w0 = Type::load8(values), w1 = Type::load8(values + 8 * Type::kBytes);
      for (int r = 0; r < R; ++r) {
        const __m256 a = _mm256_broadcast_ss(x + r * args.a.x_stride + k);
        acc[r][2 * p] = _mm256_fmadd_ps(a, w0, acc[r][2 * p]);
        acc[r][2 * p + 1] = _mm256_fmadd_ps(a, w1, acc[r][2 * p + 1]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 2 * P; ++i) {
      const int64_t output = first_output + 8 * i;
      if (output < args.w.n_out) store_outputs(args, row + r, output, acc[r][i]);
    }
  }
}

// All rows of one panel.
template <typename Type>
void panel_product(const ProductArgs& args, const uint8_t* w, int64_t first_output) {
  int64_t r = args.row_begin;
  for (; r + kTileRows <= args.row_end; r += kTileRows) {
    tile<Type, kTileRows, 1>(args, w, 0, r, first_output);
  }
  for (; r + 2 <= args.row_end; r += 2) tile<Type, 2, 1>(args, w, 0, r, first_output);
  for (; r < args.row_end; ++r) tile<Type, 1, 1>(args, w, 0, r, first_output);
}

template <typename Type>
void gemm_float(const ProductArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    panel_product<Type>(args, args.w.data + p * args.w.panel_bytes, p * kFloatPanelRows);
  }
}

// One row has two chains per panel; four panels give the eight that hide the latency.
template <typename Type>
void gemv_float(const ProductArgs& args) {
  const PackedMatrix& w = args.w;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    int64_t p = args.panel_begin;
    for (; p + 4 <= args.panel_end; p += 4) {
      tile<Type, 1, 4>(args, w.data + p * w.panel_bytes, w.panel_bytes, r, p * kFloatPanelRows);
    }
    for (; p < args.panel_end; ++p) {
      tile<Type, 1, 1>(args, w.data + p * w.panel_bytes, 0, r, p * kFloatPanelRows);
    }
  }
}

template <typename Type>
int64_t float_panel_bytes(int64_t n_in) {
  return n_in * kFloatPanelRows * Type::kBytes;
}

template <typename Type>
void pack_float(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  constexpr int kBytes = Type::kBytes;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t k = 0; k < n_in; ++k) {
      std::memcpy(panel + (k * kFloatPanelRows + r) * kBytes, rows + (r * n_in + k) * kBytes,
                  kBytes);
    }
  }
}

template <typename Type>
void unpack_float(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  constexpr int kBytes = Type::kBytes;
  for (int64_t k = 0; k < n_in; ++k) {
    std::memcpy(file_row + k * kBytes, panel + (k * kFloatPanelRows + row) * kBytes, kBytes);
  }
}

template <typename Type>
LinearKernels kernels_float(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kFloatPanelRows;
  k.activation = ActivationFormat::kF32;
  k.panel_bytes = float_panel_bytes<Type>;
  k.pack = pack_float<Type>;
  k.unpack = unpack_float<Type>;
  k.gemv = gemv_float<Type>;
  k.gemv_name = gemv_name;
  k.gemm = gemm_float<Type>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = 2;
  return k;
}

// --- any type through dequantisation: a panel is 16 rows in the file's form ---------------------

constexpr int64_t kPiece = 256;  // values of a row dequantised at once; every block size divides it

template <int kType>
constexpr int64_t file_row_bytes(int64_t n_in) {
  return n_in / weight::shape_of(kType).values * weight::shape_of(kType).bytes;
}

template <int kType>
int64_t rows_panel_bytes(int64_t n_in) {
  return (kFloatPanelRows * file_row_bytes<kType>(n_in) + 63) / 64 * 64;
}

int64_t rows_scratch_bytes(int64_t n_in) {
  return (n_in + kPiece) * kFloatPanelRows * int64_t{sizeof(float)};
}

template <int kType>
void pack_rows(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  std::memcpy(panel, rows, static_cast<size_t>(n_rows * file_row_bytes<kType>(n_in)));
}

template <int kType>
void unpack_row(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  const int64_t n = file_row_bytes<kType>(n_in);
  std::memcpy(file_row, panel + row * n, static_cast<size_t>(n));
}

// `rows` are 16 rows of kPiece values; writes n values of each, side by side.
void interleave(const float* rows, int64_t n, float* out) {
  for (int half = 0; half < kFloatPanelRows; half += 8) {
    for (int64_t k = 0; k < n; k += 8) {
      __m256 v[8];
      for (int i = 0; i < 8; ++i) v[i] = _mm256_load_ps(rows + (half + i) * kPiece + k);
      transpose8(v);
      for (int i = 0; i < 8; ++i) _mm256_store_ps(out + (k + i) * kFloatPanelRows + half, v[i]);
    }
  }
}

void product_dequantised(const ProductArgs& args, int type, int64_t row_bytes,
                         weight::BlockShape shape) {
  const int64_t n_in = args.w.n_in;
  float* values = reinterpret_cast<float*>(args.scratch);
  float* piece = values + n_in * kFloatPanelRows;
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const uint8_t* panel = args.w.data + p * args.w.panel_bytes;
    for (int64_t k = 0; k < n_in; k += kPiece) {
      const int64_t n = n_in - k < kPiece ? n_in - k : kPiece;
      for (int64_t r = 0; r < kFloatPanelRows; ++r) {
        dequantize_values(type, panel + r * row_bytes + k / shape.values * shape.bytes, n,
                          piece + r * kPiece);
      }
      interleave(piece, n, values + k * kFloatPanelRows);
    }
    panel_product<F32>(args, reinterpret_cast<const uint8_t*>(values), p * kFloatPanelRows);
  }
}

template <int kType>
void product_rows(const ProductArgs& args) {
  product_dequantised(args, kType, file_row_bytes<kType>(args.w.n_in), weight::shape_of(kType));
}

template <int kType>
LinearKernels kernels_rows() {
  LinearKernels k;
  k.layout = "16_file_rows";
  k.panel_rows = kFloatPanelRows;
  k.activation = ActivationFormat::kF32;
  k.panel_bytes = rows_panel_bytes<kType>;
  k.scratch_bytes = rows_scratch_bytes;
  k.pack = pack_rows<kType>;
  k.unpack = unpack_row<kType>;
  k.gemv = k.gemm = product_rows<kType>;
  k.gemv_name = k.gemm_name = "avx2.linear_f32";
  return k;
}

template <int... kTypes>
void install_rows(KernelTable& table) {
  ((table.linear_f32[kTypes] = kernels_rows<kTypes>()), ...);
}

}  // namespace

void install_linear_float(KernelTable& table) {
  using namespace weight;
  LinearKernels* t = table.linear_f32;
  t[kF32] = kernels_float<F32>("f32_x16", "avx2.gemv_f32", "avx2.gemm_f32");
  t[kF16] = kernels_float<F16>("f16_x16", "avx2.gemv_f16", "avx2.gemm_f16");
  t[kBF16] = kernels_float<BF16>("bf16_x16", "avx2.gemv_bf16", "avx2.gemm_bf16");
  table.linear[kF32] = t[kF32];
  table.linear[kF16] = t[kF16];
  table.linear[kBF16] = t[kBF16];
  install_rows<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ2_XXS,
               kIQ2_XS, kIQ3_XXS, kIQ1_S, kIQ4_NL, kIQ3_S, kIQ2_S, kIQ4_XS, kIQ1_M, kTQ1_0, kTQ2_0,
               kMXFP4, kNVFP4, kQ1_0, kQ2_0>(table);
}

}  // namespace okibi::cpu::avx2
