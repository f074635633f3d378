// Depthwise causal convolutions over the lanes of a level (L: see any level's lanes.h). The rows of
// the step are read where they lie, those before them in the history.
#pragma once

#include "cpu/kernels/shared/gates.h"
#include "cpu/recurrent_kernels.h"

namespace okibi::cpu {
namespace {

// Row t of the sequence, counted from the step's first; before it, of the history.
inline const float* conv_row(const CausalConvArgs& a, int64_t t) {
  const int64_t n_past = (a.n_taps - 1) * a.dilation;
  return t >= 0 ? a.x + t * a.x_stride : a.state_in + (n_past + t) * a.d;
}

// The rows that row t is made of, oldest first.
inline void conv_sources(const CausalConvArgs& a, int64_t t, const float** sources) {
  for (int64_t j = 0; j < a.n_taps; ++j) {
    sources[j] = conv_row(a, t - (a.n_taps - 1 - j) * a.dilation);
  }
}

// 16 channels from c on, the first n of them. Terms are added oldest first.
template <class L>
inline typename L::V convolve(const CausalConvArgs& a, const float* const* sources, int64_t c,
                              int64_t n) {
  auto sum = L::mul(L::load(a.taps + c, n), L::load(sources[0] + c, n));
  for (int64_t j = 1; j < a.n_taps; ++j) {
    sum = L::fma(L::load(a.taps + j * a.d + c, n), L::load(sources[j] + c, n), sum);
  }
  return sum;
}

// After the last row. Oldest first: a row of the old history moves to a place before its own.
template <class L>
inline void keep_history(const CausalConvArgs& a) {
  const int64_t n_past = (a.n_taps - 1) * a.dilation;
  for (int64_t j = 0; j < n_past; ++j) {
    const float* from = conv_row(a, a.n_rows - n_past + j);
    float* to = a.state_out + j * a.d;
    for (int64_t c = a.channel_begin; c < a.channel_end; c += 16) {
      L::store(to + c, L::load(from + c, a.channel_end - c), a.channel_end - c);
    }
  }
}

template <class L>
void causal_conv(const CausalConvArgs& a) {
  const float* sources[kMaxConvSources];
  for (int64_t t = 0; t < a.n_rows; ++t) {
    conv_sources(a, t, sources);
    float* out = a.out + t * a.out_stride;
    for (int64_t c = a.channel_begin; c < a.channel_end; c += 16) {
      const int64_t n = a.channel_end - c;
      L::store(out + c, silu<L>(convolve<L>(a, sources, c, n)), n);
    }
  }
  keep_history<L>(a);
}

}  // namespace
}  // namespace okibi::cpu
