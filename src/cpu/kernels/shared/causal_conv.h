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

// 16 channels from c on, the first n of them where kTail. Terms are added oldest first. kTaps: 0,
// or n_taps, for a loop without branches.
template <class L, int kTaps, bool kTail>
inline typename L::V convolve(const CausalConvArgs& a, const float* const* sources, int64_t c,
                              int64_t n) {
  const auto at = [&](const float* p) { return kTail ? L::load(p, n) : L::load(p); };
  const int64_t n_taps = kTaps > 0 ? kTaps : a.n_taps;
  auto sum = L::mul(at(a.taps + c), at(sources[0] + c));
  for (int64_t j = 1; j < n_taps; ++j) {
    sum = L::fma(at(a.taps + j * a.d + c), at(sources[j] + c), sum);
  }
  return sum;
}

// finish(t, c, n, sum) for every row t and channels c to c + n, n at most 16. A unit has a few
// channels of rows that lie far apart, so the next row is asked for by hand.
template <class L, int kTaps, class Fn>
inline void convolve_rows(const CausalConvArgs& a, const Fn& finish) {
  const float* sources[kMaxConvSources];
  for (int64_t t = 0; t < a.n_rows; ++t) {
    conv_sources(a, t, sources);
    const int64_t next = t + 1 < a.n_rows ? t + 1 : t;
    const float* next_x = a.x + next * a.x_stride;
    const float* next_out = a.out + next * a.out_stride;
    int64_t c = a.channel_begin;
    for (; a.channel_end - c >= 16; c += 16) {
      __builtin_prefetch(next_x + c);
      __builtin_prefetch(next_out + c, 1);
      finish(t, c, int64_t{16}, convolve<L, kTaps, false>(a, sources, c, 16));
    }
    const int64_t n = a.channel_end - c;
    if (n > 0) finish(t, c, n, convolve<L, kTaps, true>(a, sources, c, n));
  }
}
template <class L, class Fn>
inline void convolve_rows(const CausalConvArgs& a, const Fn& finish) {
  if (a.n_taps == 4) {
    convolve_rows<L, 4>(a, finish);
  } else {
    convolve_rows<L, 0>(a, finish);
  }
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
  convolve_rows<L>(a, [&](int64_t t, int64_t c, int64_t n, typename L::V sum) {
    L::store(a.out + t * a.out_stride + c, silu<L>(sum), n);
  });
  keep_history<L>(a);
}

}  // namespace
}  // namespace okibi::cpu
