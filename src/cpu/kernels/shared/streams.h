// Residual streams and gates over the lanes of a level (L: see any level's lanes.h); what each
// function computes stands in cpu/stream_kernels.h.
#pragma once

#include "cpu/kernels/shared/gates.h"
#include "cpu/stream_kernels.h"

namespace okibi::cpu {
namespace {

// 1 / sqrt(mean(x^2) + eps) from the 16 lanes of squares.
template <class L>
inline float inverse_root(typename L::V squares, int64_t n, float eps) {
  return 1.0f / L::sqrt(L::sum(squares) / static_cast<float>(n) + eps);
}

template <class L>
inline float inverse_rms(const float* x, int64_t n, float eps) {
  auto squares = L::zero();
  for (int64_t i = 0; i < n; i += 16) {
    const auto v = L::load(x + i, n - i);
    squares = L::fma(v, v, squares);
  }
  return inverse_root<L>(squares, n, eps);
}

template <class L>
void norm_groups(const float* x, const float* gamma, int64_t n_groups, int64_t d, float eps,
                 float* out) {
  for (int64_t g = 0; g < n_groups; ++g, x += d, gamma += d, out += d) {
    const auto inverse = L::splat(inverse_rms<L>(x, d, eps));
    for (int64_t i = 0; i < d; i += 16) {
      const auto v = L::mul(L::load(x + i, d - i), inverse);
      L::store(out + i, L::mul(v, L::load(gamma + i, d - i)), d - i);
    }
  }
}

template <class L>
void silu_row(float* x, int64_t n, float scale) {
  const auto s = L::splat(scale);
  for (int64_t i = 0; i < n; i += 16) {
    L::store(x + i, silu<L>(L::mul(L::load(x + i, n - i), s)), n - i);
  }
}

template <class L>
void mix_streams(const float* normed, const float* mix, int64_t n_streams, int64_t d, int64_t begin,
                 int64_t end, float* out) {
  const auto share = L::splat(1.0f / static_cast<float>(n_streams));
  for (int64_t i = begin; i < end; i += 16) {
    auto sum = L::zero();
    for (int64_t c = 0; c < n_streams; ++c) {
      const auto gate = sigmoid<L>(L::load(mix + c * d + i, end - i));
      sum = L::fma(gate, L::load(normed + c * d + i, end - i), sum);
    }
    L::store(out + i, L::mul(sum, share), end - i);
  }
}

template <class L>
void inject_streams(const float* y, const float* strength, int64_t n_streams, int64_t d,
                    int64_t begin, int64_t end, float* inout) {
  float s[kMaxStreams];
  const auto n = L::splat(static_cast<float>(n_streams));
  L::store(s, L::mul(L::splat(2.0f), sigmoid<L>(L::div(L::load(strength, n_streams), n))));
  for (int64_t i = begin; i < end; i += 16) {
    const auto v = L::load(y + i, end - i);
    for (int64_t c = 0; c < n_streams; ++c) {
      float* at = inout + c * d + i;
      L::store(at, L::fma(L::splat(s[c]), v, L::load(at, end - i)), end - i);
    }
  }
}

template <class L>
void sigmoid_mul(const float* gate, int64_t n, float* inout) {
  for (int64_t i = 0; i < n; i += 16) {
    const auto g = sigmoid<L>(L::load(gate + i, n - i));
    L::store(inout + i, L::mul(L::load(inout + i, n - i), g), n - i);
  }
}

template <class L>
void gated_norm(const float* gate, bool is_silu, const float* gamma, int64_t n, float eps,
                float* inout) {
  const auto inverse = L::splat(inverse_rms<L>(inout, n, eps));
  for (int64_t i = 0; i < n; i += 16) {
    const auto v = L::mul(L::mul(L::load(inout + i, n - i), inverse), L::load(gamma + i, n - i));
    const auto g = L::load(gate + i, n - i);
    L::store(inout + i, L::mul(v, is_silu ? silu<L>(g) : sigmoid<L>(g)), n - i);
  }
}

template <class L>
void add_gated(const float* in, float gate, int64_t n, float* inout) {
  const auto g = sigmoid<L>(L::splat(gate));
  for (int64_t i = 0; i < n; i += 16) {
    L::store(inout + i, L::fma(g, L::load(in + i, n - i), L::load(inout + i, n - i)), n - i);
  }
}

template <class L>
inline StreamKernels streams_of() {
  return {.norm_groups = norm_groups<L>,
          .silu = silu_row<L>,
          .mix = mix_streams<L>,
          .inject = inject_streams<L>,
          .sigmoid_mul = sigmoid_mul<L>,
          .gated_norm = gated_norm<L>,
          .add_gated = add_gated<L>};
}

}  // namespace
}  // namespace okibi::cpu
