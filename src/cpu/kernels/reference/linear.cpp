// Products with quantised weights as kernel_table.h states them, without fused operations: the
// oracle of the other levels. A panel is one row in the file's form. Clarity over speed.
#include "cpu/kernels/reference/linear.h"

#include <cstring>

#include "cpu/canonical.h"
#include "cpu/weight_types.h"

namespace okibi::cpu::reference {
namespace {

// Rows that share the unpacking of a weight block.
constexpr int64_t kRowGroup = 32;

int32_t dot(const int8_t* a, const int8_t* b, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += int32_t{a[i]} * int32_t{b[i]};
  return sum;
}

float add_block32(const CanonicalBlock32& w, const int8_t* q, float da, int32_t sum, bool per_16,
                  float acc) {
  if (per_16) {
    acc += static_cast<float>(dot(w.v, q, 16)) * w.d[0] * da;
    return acc + static_cast<float>(dot(w.v + 16, q + 16, 16)) * w.d[1] * da;
  }
  acc += static_cast<float>(dot(w.v, q, 32)) * w.d[0] * da;
  return acc + w.m * (da * static_cast<float>(sum));
}

float add_block256(const CanonicalBlock256& w, const int8_t* q, float da, const int16_t* sums16,
                   float acc) {
  int32_t total = 0, minima = 0;
  for (int g = 0; g < 16; ++g) {
    total += w.scale[g] * dot(w.v + 16 * g, q + 16 * g, 16);
    minima += w.min[g] * sums16[g];
  }
  acc += w.d * da * static_cast<float>(total);
  return acc - w.m * da * static_cast<float>(minima);
}

void finish(const ProductArgs& args, int64_t row, int64_t output, float acc) {
  float* out = args.out + row * args.out_stride + output;
  const float result = acc * args.w.scale;
  *out = args.accumulate ? *out + result : result;
}

template <int kType>
void product32(const ProductArgs& args) {
  const Activations& a = args.a;
  for (int64_t o = args.panel_begin; o < args.panel_end; ++o) {
    const uint8_t* w = args.w.data + o * args.w.panel_bytes;
    for (int64_t row = args.row_begin; row < args.row_end; row += kRowGroup) {
      const int64_t n = args.row_end - row < kRowGroup ? args.row_end - row : kRowGroup;
      float acc[kRowGroup] = {};
      for (int64_t b = 0; b < args.w.n_in / 32; ++b) {
        CanonicalBlock32 block;
        canonical_block32(kType, w, b, &block);
        for (int64_t r = 0; r < n; ++r) {
          const int64_t scale = (row + r) * a.d_stride + b;
          acc[r] = add_block32(block, a.q + (row + r) * a.q_stride + 32 * b, a.d[scale],
                               a.sums32[scale], kType == weight::kNVFP4, acc[r]);
        }
      }
      for (int64_t r = 0; r < n; ++r) finish(args, row + r, o, acc[r]);
    }
  }
}

template <int kType>
void product256(const ProductArgs& args) {
  const Activations& a = args.a;
  for (int64_t o = args.panel_begin; o < args.panel_end; ++o) {
    const uint8_t* w = args.w.data + o * args.w.panel_bytes;
    for (int64_t row = args.row_begin; row < args.row_end; row += kRowGroup) {
      const int64_t n = args.row_end - row < kRowGroup ? args.row_end - row : kRowGroup;
      float acc[kRowGroup] = {};
      for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
        CanonicalBlock256 block;
        canonical_block256(kType, w + b * weight::shape_of(kType).bytes, &block);
        for (int64_t r = 0; r < n; ++r) {
          acc[r] = add_block256(block, a.q + (row + r) * a.q_stride + 256 * b,
                                a.d[(row + r) * a.d_stride + b],
                                a.sums16 + (row + r) * a.sums16_stride + 16 * b, acc[r]);
        }
      }
      for (int64_t r = 0; r < n; ++r) finish(args, row + r, o, acc[r]);
    }
  }
}

template <int kType>
LinearKernels quantised_kernels(const char* name) {
  constexpr bool kIs256 = weight::shape_of(kType).values == 256;
  LinearKernels k;
  k.layout = "file_rows";
  k.panel_rows = 1;
  k.activation = kIs256 ? ActivationFormat::kQ8B256 : ActivationFormat::kQ8B32;
  k.panel_bytes = panel_bytes<kType>;
  k.pack = pack<kType>;
  k.unpack = unpack<kType>;
  if constexpr (kIs256) {
    k.gemv = k.gemm = product256<kType>;
  } else {
    k.gemv = k.gemm = product32<kType>;
  }
  k.gemv_name = k.gemm_name = name;
  return k;
}

}  // namespace

void install_linear(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ4_0] = quantised_kernels<weight::kQ4_0>("reference.linear_q4_0");
  t[weight::kQ4_1] = quantised_kernels<weight::kQ4_1>("reference.linear_q4_1");
  t[weight::kQ5_0] = quantised_kernels<weight::kQ5_0>("reference.linear_q5_0");
  t[weight::kQ5_1] = quantised_kernels<weight::kQ5_1>("reference.linear_q5_1");
  t[weight::kQ8_0] = quantised_kernels<weight::kQ8_0>("reference.linear_q8_0");
  t[weight::kIQ4_NL] = quantised_kernels<weight::kIQ4_NL>("reference.linear_iq4_nl");
  t[weight::kMXFP4] = quantised_kernels<weight::kMXFP4>("reference.linear_mxfp4");
  t[weight::kNVFP4] = quantised_kernels<weight::kNVFP4>("reference.linear_nvfp4");
  t[weight::kQ1_0] = quantised_kernels<weight::kQ1_0>("reference.linear_q1_0");
  t[weight::kQ2_0] = quantised_kernels<weight::kQ2_0>("reference.linear_q2_0");
  t[weight::kQ2_K] = quantised_kernels<weight::kQ2_K>("reference.linear_q2k");
  t[weight::kQ3_K] = quantised_kernels<weight::kQ3_K>("reference.linear_q3k");
  t[weight::kQ4_K] = quantised_kernels<weight::kQ4_K>("reference.linear_q4k");
  t[weight::kQ5_K] = quantised_kernels<weight::kQ5_K>("reference.linear_q5k");
  t[weight::kQ6_K] = quantised_kernels<weight::kQ6_K>("reference.linear_q6k");
  t[weight::kIQ1_S] = quantised_kernels<weight::kIQ1_S>("reference.linear_iq1_s");
  t[weight::kIQ1_M] = quantised_kernels<weight::kIQ1_M>("reference.linear_iq1_m");
  t[weight::kIQ2_XXS] = quantised_kernels<weight::kIQ2_XXS>("reference.linear_iq2_xxs");
  t[weight::kIQ2_XS] = quantised_kernels<weight::kIQ2_XS>("reference.linear_iq2_xs");
  t[weight::kIQ2_S] = quantised_kernels<weight::kIQ2_S>("reference.linear_iq2_s");
  t[weight::kIQ3_XXS] = quantised_kernels<weight::kIQ3_XXS>("reference.linear_iq3_xxs");
  t[weight::kIQ3_S] = quantised_kernels<weight::kIQ3_S>("reference.linear_iq3_s");
  t[weight::kIQ4_XS] = quantised_kernels<weight::kIQ4_XS>("reference.linear_iq4_xs");
  t[weight::kTQ1_0] = quantised_kernels<weight::kTQ1_0>("reference.linear_tq1_0");
  t[weight::kTQ2_0] = quantised_kernels<weight::kTQ2_0>("reference.linear_tq2_0");

  for (const weight::BlockShape& shape : weight::kShapes) {
    table.linear_f32[shape.type] = float_kernels(shape.type);
    if (shape.values == 1) t[shape.type] = table.linear_f32[shape.type];
  }
  table.quantize_q8b32 = quantize_q8b32;
  table.quantize_q8b256 = quantize_q8b256;
}

}  // namespace okibi::cpu::reference
