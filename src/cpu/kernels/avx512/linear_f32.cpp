// Products of float activations: with F32, F16 and BF16 weights as they are, and with every other
// type (activations f32 mode) through exact dequantisation of 16 rows at a time. One fused
// multiply-add per value in order of k, so every tiling gives the same bits, those of avx2 too.
#include <immintrin.h>

#include <cstring>

#include "cpu/canonical.h"
#include "cpu/kernels/avx512/linear_f32.h"
#include "cpu/weight_types.h"

namespace okibi::cpu::avx512 {
namespace {

// One vector of outputs: 12 activation rows give 12 chains, which cover latency 4 at two per cycle
// and leave room for the weights in 32 registers; more rows would not lower the loads per product.
constexpr int kFloatPanelRows = 16;
constexpr int kTileRows = 12;

struct F32 {
  static constexpr int kBytes = 4;
  static __m512 load16(const uint8_t* p) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
  }
};
inline __m256i load256(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
struct F16 {
  static constexpr int kBytes = 2;
  static __m512 load16(const uint8_t* p) { return _mm512_cvtph_ps(load256(p)); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static __m512 load16(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16));
  }
};

void store_outputs(const ProductArgs& args, int64_t row, int64_t first, __m512 acc) {
  float* out = args.out + row * args.out_stride + first;
  const int64_t n = args.w.n_out - first;
  const __mmask16 mask = n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1);
  __m512 result = _mm512_mul_ps(acc, _mm512_set1_ps(args.w.scale));
  if (args.accumulate) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), result);
  _mm512_mask_storeu_ps(out, mask, result);
}

// R rows by P panels: panel p's value k of 16 outputs is at w + p * panel_bytes + 16 * kBytes * k.
template <typename Type, int R, int P>
void tile(const ProductArgs& args, const uint8_t* w, int64_t panel_bytes, int64_t row,
          int64_t first_output) {
  __m512 acc[R][P];
  for (auto& sums : acc) {
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
  }
  const float* x = args.a.x + row * args.a.x_stride;
  for (int64_t k = 0; k < args.w.n_in; ++k) {
    for (int p = 0; p < P; ++p) {
      const __m512 values = Type::load16(w + p * panel_bytes + k * kFloatPanelRows * Type::kBytes);
      for (int r = 0; r < R; ++r) {
        acc[r][p] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * args.a.x_stride + k]), values, acc[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      store_outputs(args, row + r, first_output + p * kFloatPanelRows, acc[r][p]);
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
  for (; r + 4 <= args.row_end; r += 4) tile<Type, 4, 1>(args, w, 0, r, first_output);
  for (; r < args.row_end; ++r) tile<Type, 1, 1>(args, w, 0, r, first_output);
}

template <typename Type>
void gemm_float(const ProductArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    panel_product<Type>(args, args.w.data + p * args.w.panel_bytes, p * kFloatPanelRows);
  }
}

// One row has one chain per panel; eight panels hide the latency.
template <typename Type>
void gemv_float(const ProductArgs& args) {
  const PackedMatrix& w = args.w;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    int64_t p = args.panel_begin;
    for (; p + 8 <= args.panel_end; p += 8) {
      tile<Type, 1, 8>(args, w.data + p * w.panel_bytes, w.panel_bytes, r, p * kFloatPanelRows);
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

// Transposes 8 x 8 floats held as rows.
inline void transpose8(__m256 r[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
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
  k.gemv_name = k.gemm_name = "avx512.linear_f32";
  return k;
}

template <int... kTypes>
void install_rows(KernelTable& table) {
  ((table.linear_f32[kTypes] = kernels_rows<kTypes>()), ...);
}

}  // namespace

void install_linear_f32(KernelTable& table) {
  using namespace weight;
  LinearKernels* t = table.linear_f32;
  t[kF32] = kernels_float<F32>("f32_x16", "avx512.gemv_f32", "avx512.gemm_f32");
  t[kF16] = kernels_float<F16>("f16_x16", "avx512.gemv_f16", "avx512.gemm_f16");
  t[kBF16] = kernels_float<BF16>("bf16_x16", "avx512.gemv_bf16", "avx512.gemm_bf16");
  table.linear[kF32] = t[kF32];
  table.linear[kF16] = t[kF16];
  table.linear[kBF16] = t[kBF16];
  install_rows<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ2_XXS,
               kIQ2_XS, kIQ3_XXS, kIQ1_S, kIQ4_NL, kIQ3_S, kIQ2_S, kIQ4_XS, kIQ1_M, kTQ1_0, kTQ2_0,
               kMXFP4, kNVFP4, kQ1_0, kQ2_0>(table);
}

}  // namespace okibi::cpu::avx512
