// RMS normalisation and the gated SiLU, one row at a time.
#include <cmath>

#include "cpu/kernels/reference/nonlinear.h"
#include "cpu/kernels/reference/scalar_math.h"

namespace okibi::cpu::reference {
namespace {

void rms_norm(const float* x, const float* gamma, int64_t n, float eps, float* out) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i] * x[i];
  const float mean = sum_lanes(lanes) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse * gamma[i];
}

// g / (1 + e^-g) through e^-|g|, which cannot overflow.
float silu(float g) {
  const float e = exp_nonpositive(g > 0.0f ? -g : g);
  return (g > 0.0f ? g : g * e) / (1.0f + e);
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = silu(gate[i]) * up[i];
}

}  // namespace

void install_elementwise(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.silu_mul = silu_mul;
}

}  // namespace okibi::cpu::reference
