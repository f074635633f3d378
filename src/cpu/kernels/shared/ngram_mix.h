// Mixing gathered n-grams into the residual streams, over the lanes of a level (L: see any level's
// lanes.h). Formulas: ops::NgramMix.
#pragma once

#include "cpu/kernels/shared/causal_conv.h"
#include "cpu/kernels/shared/streams.h"

namespace okibi::cpu {
namespace {

// sigmoid(sign(d) sqrt(max(|d|, 1e-6)))
template <class L>
inline float ngram_weight(float d) {
  const float magnitude = d < 0.0f ? -d : d;
  const float root = L::sqrt(magnitude > 1e-6f ? magnitude : 1e-6f);
  float w[16];
  L::store(w, sigmoid<L>(L::splat(d > 0.0f ? root : d < 0.0f ? -root : 0.0f)));
  return w[0];
}

// The weight of the stream; the key gives its place to nn.
template <class L>
float ngram_gate(const NgramGateArgs& a) {
  const auto inverse_key = L::splat(inverse_rms<L>(a.key, a.d, a.eps));
  const auto inverse_query = L::splat(inverse_rms<L>(a.residual, a.d, a.eps));
  auto dot = L::zero();
  for (int64_t i = 0; i < a.d; i += 16) {
    const int64_t n = a.d - i;
    const auto k = L::mul(L::mul(L::load(a.key + i, n), inverse_key), L::load(a.key_norm + i, n));
    const auto q =
        L::mul(L::mul(L::load(a.residual + i, n), inverse_query), L::load(a.query_norm + i, n));
    dot = L::fma(k, q, dot);
  }
  const float weight = ngram_weight<L>(L::sum(dot) / L::sqrt(static_cast<float>(a.d)));
  const auto w = L::splat(weight);
  auto squares = L::zero();
  for (int64_t i = 0; i < a.d; i += 16) {
    const auto v = L::mul(w, L::load(a.value + i, a.d - i));
    squares = L::fma(v, v, squares);
  }
  const auto inverse = L::splat(inverse_root<L>(squares, a.d, a.eps));
  for (int64_t i = 0; i < a.d; i += 16) {
    const int64_t n = a.d - i;
    const auto v = L::mul(L::mul(w, L::load(a.value + i, n)), inverse);
    L::store(a.key + i, L::mul(v, L::load(a.conv_norm + i, n)), n);
  }
  return weight;
}

template <class L>
void ngram_conv(const NgramConvArgs& args) {
  const CausalConvArgs& a = args.conv;
  convolve_rows<L>(a, [&](int64_t t, int64_t c, int64_t n, typename L::V sum) {
    const auto w = L::splat(args.gates[t * args.gate_stride]);
    const auto value =
        L::mul(w, L::load(args.value + t * args.value_stride + (c - args.stream_begin), n));
    float* out = a.out + t * a.out_stride + c;
    L::store(out, L::add(L::load(out, n), L::add(value, silu<L>(sum))), n);
  });
  keep_history<L>(a);
}

}  // namespace
}  // namespace okibi::cpu
