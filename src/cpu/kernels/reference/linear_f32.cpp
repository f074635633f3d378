// Products of float activations with any weight type: rows are dequantised exactly and summed in
// order. A panel is one row in the file's form; several outputs are computed at once, each with its
// own sum, so that one chain of additions does not wait for itself.
#include <cstring>

#include "cpu/canonical.h"
#include "cpu/kernels/reference/linear.h"
#include "cpu/weight_types.h"

namespace okibi::cpu::reference {
namespace {

constexpr int kLanes = 8;  // outputs in flight

// One dequantised row and kLanes of them interleaved.
int64_t scratch_bytes(int64_t n_in) {
  return n_in * (kLanes + 1) * int64_t{sizeof(float)};
}

// sums[j] = sum over k, in order, of x[k] * w[k][j].
void dot_lanes(const float* x, const float* w, int64_t n, float* sums) {
  float acc[kLanes] = {};
  for (int64_t k = 0; k < n; ++k) {
    for (int j = 0; j < kLanes; ++j) acc[j] = acc[j] + x[k] * w[k * kLanes + j];
  }
  std::memcpy(sums, acc, sizeof acc);
}

template <int kType>
void product(const ProductArgs& args) {
  const int64_t n_in = args.w.n_in;
  float* lanes = reinterpret_cast<float*>(args.scratch);
  float* row = lanes + n_in * kLanes;
  for (int64_t o = args.panel_begin; o < args.panel_end; o += kLanes) {
    const int64_t n = args.panel_end - o < kLanes ? args.panel_end - o : kLanes;
    std::memset(lanes, 0, static_cast<size_t>(n_in * kLanes) * sizeof(float));
    for (int64_t j = 0; j < n; ++j) {
      dequantize_values(kType, args.w.data + (o + j) * args.w.panel_bytes, n_in, row);
      for (int64_t k = 0; k < n_in; ++k) lanes[k * kLanes + j] = row[k];
    }
    for (int64_t r = args.row_begin; r < args.row_end; ++r) {
      float sums[kLanes];
      dot_lanes(args.a.x + r * args.a.x_stride, lanes, n_in, sums);
      float* out = args.out + r * args.out_stride + o;
      for (int64_t j = 0; j < n; ++j) {
        const float result = sums[j] * args.w.scale;
        out[j] = args.accumulate ? out[j] + result : result;
      }
    }
  }
}

template <int kType>
LinearKernels kernels() {
  LinearKernels k;
  k.layout = "file_rows";
  k.panel_rows = 1;
  k.activation = ActivationFormat::kF32;
  k.panel_bytes = panel_bytes<kType>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack<kType>;
  k.unpack = unpack<kType>;
  k.gemv = k.gemm = product<kType>;
  k.gemv_name = k.gemm_name = "reference.linear_f32";
  return k;
}

template <int... kTypes>
LinearKernels choose(int type) {
  LinearKernels found;
  ((kTypes == type ? void(found = kernels<kTypes>()) : void()), ...);
  return found;
}

}  // namespace

LinearKernels float_kernels(int type) {
  using namespace weight;
  return choose<kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K,
                kQ6_K, kIQ2_XXS, kIQ2_XS, kIQ3_XXS, kIQ1_S, kIQ4_NL, kIQ3_S, kIQ2_S, kIQ4_XS,
                kIQ1_M, kTQ1_0, kTQ2_0, kMXFP4, kNVFP4, kQ1_0, kQ2_0>(type);
}

}  // namespace okibi::cpu::reference
