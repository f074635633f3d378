// Layer normalisation and the two forms of GELU that picture encoders use, one row at a time.
#include <cmath>

#include "cpu/kernels/reference/nonlinear.h"
#include "cpu/kernels/reference/scalar_math.h"

namespace okibi::cpu::reference {
namespace {

void layer_norm(float* x, const float* bias, const float* gamma, const float* beta, int64_t n,
                float eps, float* out) {
  float sums[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    if (bias != nullptr) x[i] += bias[i];
    sums[i % kLanes] += x[i];
  }
  const float mean = sum_lanes(sums) / static_cast<float>(n);
  float squares[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) squares[i % kLanes] += (x[i] - mean) * (x[i] - mean);
  const float variance = sum_lanes(squares) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(variance + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
}

// (1 + tanh u) / 2 = 1 / (1 + e^-2u), through e^-|2u|, which cannot overflow.
float gelu_tanh(float s) {
  const float g = s * (s * s * kGeluCubic + kGeluLinear);
  const float e = exp_nonpositive(g > 0.0f ? -g : g);
  return (g > 0.0f ? s : s * e) / (1.0f + e);
}

// s Phi(s), with Phi(-a) = e^(-a^2 / 2) t P(t), t = 1 / (1 + 0.3 a); see scalar_math.h.
float gelu_erf(float s) {
  const float a = s > 0.0f ? s : -s;
  const float t = 1.0f / (1.0f + a * kPhiT);
  float p = kPhiP[7];
  for (int i = 6; i >= 0; --i) p = p * t + kPhiP[i];
  const float tail = s * (exp_nonpositive(a * a * -0.5f) * (p * t));
  return s > 0.0f ? s - tail : tail;
}

void gelu_tanh_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = gelu_tanh(x[i] + bias[i]);
}

void gelu_erf_row(float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = gelu_erf(x[i] + bias[i]);
}

}  // namespace

void install_vision(KernelTable& table) {
  table.layer_norm = layer_norm;
  table.gelu_tanh = gelu_tanh_row;
  table.gelu_erf = gelu_erf_row;
}

}  // namespace okibi::cpu::reference
