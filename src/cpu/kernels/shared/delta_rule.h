// The gated delta rule over the lanes of a level (L: see any level's lanes.h); formulas:
// ops::DeltaRule. The columns of a state are independent of each other, so a block of columns goes
// through all rows on its own. What token t leaves behind is read by token t + 1 at once:
//   S_i = k_i r + decay S_i,  out += q_i S_i,  t' += k'_i S_i     for keys i in order,
// with k' the next token's key: one pass over the state per token and four instructions per vector
// of it, whose sums are as many chains as hide the latency of a multiply-add. A block of many rows
// stays in a copy whose rows are dense: in the state they are head_dim apart and would fall into
// part of the cache's sets only.
#pragma once

#include "cpu/kernels/shared/gates.h"
#include "cpu/recurrent_kernels.h"

namespace okibi::cpu {
namespace {

// log(1 + e^x), which beyond 20 is x in float32. log(1 + y) = 2 atanh(z), z = y / (2 + y) <= 1/3
// with y = e^-|x|: the series up to z^17 leaves out 2e-9 of it. Measured over -85 .. 40: 2.5e-7 of
// the result at most.
template <class L>
inline typename L::V softplus(typename L::V x) {
  const auto y = L::exp_nonpositive(L::negative_magnitude(x));
  const auto z = L::div(y, L::add(L::splat(2.0f), y));
  const auto z2 = L::mul(z, z);
  auto p = L::splat(1.0f / 17.0f);
  constexpr float kTerms[] = {1.0f / 15.0f, 1.0f / 13.0f, 1.0f / 11.0f, 1.0f / 9.0f,
                              1.0f / 7.0f,  1.0f / 5.0f,  1.0f / 3.0f};
  for (const float term : kTerms) p = L::fma(p, z2, L::splat(term));
  const auto log = L::mul(L::add(z, z), L::fma(p, z2, L::splat(1.0f)));
  return L::add(L::max(x, L::zero()), log);
}

// x / sqrt(sum x^2 + 1e-6) * scale
template <class L>
inline void unit_length(const float* x, int64_t n, float scale, float* out) {
  auto squares = L::zero();
  for (int64_t i = 0; i < n; i += 16) {
    const auto v = L::load(x + i, n - i);
    squares = L::fma(v, v, squares);
  }
  const auto factor = L::splat(scale / L::sqrt(L::sum(squares) + 1e-6f));
  for (int64_t i = 0; i < n; i += 16) {
    L::store(out + i, L::mul(L::load(x + i, n - i), factor), n - i);
  }
}

template <class L>
void delta_prepare(const DeltaPrepareArgs& a) {
  const int64_t d = a.head_dim;
  const float scale = 1.0f / L::sqrt(static_cast<float>(d));
  for (int64_t h = 0; h < a.n_key_heads; ++h) {
    float* out = a.keys + h * a.key_head_stride;
    unit_length<L>(a.qk + h * d, d, scale, out);
    unit_length<L>(a.qk + (a.n_key_heads + h) * d, d, 1.0f, out + d);
  }
  for (int64_t h = 0; h < a.n_value_heads; h += 16) {
    const int64_t n = a.n_value_heads - h;
    const auto x = L::add(L::load(a.alpha + h, n), L::load(a.dt_bias + h, n));
    const auto g = L::mul(L::load(a.a + h, n), softplus<L>(x));
    float decay[16], beta[16];
    L::store(decay, L::exp_nonpositive(g));
    L::store(beta, sigmoid<L>(L::load(a.beta + h, n)));
    for (int64_t i = 0; i < 16 && i < n; ++i) {
      float* out = a.gates + (h + i) * a.gate_head_stride;
      out[0] = decay[i];
      out[1] = beta[i];
    }
  }
}

// N vectors of columns; kTail: one, of which only the first `n` columns exist.
template <class L, int N, bool kTail>
struct DeltaBlock {
  using V = typename L::V;
  static constexpr int64_t kWidth = 16 * N;
  struct Row {
    V v[N];
  };
  int64_t n;  // columns

  V load(const float* p) const { return kTail ? L::load(p, n) : L::load(p); }
  void store(float* p, V v) const {
    if constexpr (kTail) {
      L::store(p, v, n);
    } else {
      L::store(p, v);
    }
  }

  // S^T k
  Row recall(const float* s, int64_t stride, const float* k, int64_t n_keys) const {
    Row t;
    for (int v = 0; v < N; ++v) t.v[v] = L::zero();
    for (int64_t i = 0; i < n_keys; ++i) {
      const V ki = L::splat(k[i]);
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) t.v[v] = L::fma(ki, load(s + i * stride + 16 * v), t.v[v]);
    }
    return t;
  }

  struct Pass {
    const float* from;
    float* to;
    int64_t from_stride, to_stride, n_keys;
    const float* q;
    const float* k;
    const float* next_k;
    float decay;
    const float* next_state;
  };
  // The pass at the head of this file; `out` is stored, `r` becomes t' where there is a next row.
  template <bool kNext>
  void advance(const Pass& p, Row& r, float* out) const {
    Row o, t;
    for (int v = 0; v < N; ++v) o.v[v] = t.v[v] = L::zero();
    const V decay = L::splat(p.decay);
    for (int64_t i = 0; i < p.n_keys; ++i) {
      const float* from = p.from + i * p.from_stride;
      float* to = p.to + i * p.to_stride;
      const V ki = L::splat(p.k[i]), qi = L::splat(p.q[i]);
      const V ni = kNext ? L::splat(p.next_k[i]) : L::zero();
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        const V s = L::fma(ki, r.v[v], L::mul(decay, load(from + 16 * v)));
        store(to + 16 * v, s);
        o.v[v] = L::fma(qi, s, o.v[v]);
        if constexpr (kNext) t.v[v] = L::fma(ni, s, t.v[v]);
        if constexpr (!kNext && !kTail) {
          if (p.next_state != nullptr) {
            __builtin_prefetch(p.next_state + i * p.from_stride + 16 * v, 0, 2);
          }
        }
      }
    }
    for (int v = 0; v < N; ++v) store(out + 16 * v, o.v[v]);
    if constexpr (kNext) r = t;
  }

  // Values and outputs of different rows are tens of kilobytes apart, where no hardware expects
  // them; queries and keys follow each other, but two rows on from the one being read.
  void expect_row(const DeltaArgs& a, int64_t row, int64_t column) const {
    if (row >= a.n_rows) return;
    for (int64_t c = column; c < column + kWidth; c += 16) {
      __builtin_prefetch(a.v + row * a.v_stride + c);
      __builtin_prefetch(a.out + row * a.out_stride + c, 1);
    }
    const float* keys = a.keys + (row + 1 < a.n_rows ? row + 1 : row) * 2 * a.head_dim;
    for (int64_t i = 0; i < 2 * a.head_dim; i += 16) __builtin_prefetch(keys + i);
  }

  void run(const DeltaArgs& a, int64_t column) const {
    alignas(64) float copy[kMaxDeltaHeadDim * kWidth];
    const int64_t d = a.head_dim;
    const float* state = a.state_in + column;
    Pass p = {state, copy, d, kWidth, d, nullptr, nullptr, nullptr, 0.0f, nullptr};
    if (a.n_rows == 1 && a.next_state != nullptr) p.next_state = a.next_state + column;
    Row t = recall(state, d, a.keys + d, d);
    for (int64_t row = 0; row < a.n_rows; ++row) {
      expect_row(a, row + 1, column);
      const float* value = a.v + row * a.v_stride + column;
      p.q = a.keys + row * 2 * d;
      p.k = p.q + d;
      p.decay = a.gates[2 * row];
      const V decay = L::splat(p.decay), beta = L::splat(a.gates[2 * row + 1]);
      for (int v = 0; v < N; ++v) {  // t becomes r
        t.v[v] = L::mul(beta, L::sub(load(value + 16 * v), L::mul(decay, t.v[v])));
      }
      float* out = a.out + row * a.out_stride + column;
      if (row + 1 < a.n_rows) {
        p.next_k = p.k + 2 * d;
        advance<true>(p, t, out);
        p.from = copy;
        p.from_stride = kWidth;
      } else {
        p.to = a.state_out + column;
        p.to_stride = d;
        advance<false>(p, t, out);
      }
    }
  }
};

// One row alone reads its state from memory, in runs as long as registers allow: kAlone vectors of
// columns. More rows keep a block of kMany vectors in the first-level cache.
template <class L, int kAlone, int kMany>
void delta_rule(const DeltaArgs& a) {
  int64_t c = a.column_begin;
  const int64_t end = a.column_end;
  if (a.n_rows == 1) {
    for (; end - c >= 16 * kAlone; c += 16 * kAlone) {
      DeltaBlock<L, kAlone, false>{16 * kAlone}.run(a, c);
    }
  }
  for (; end - c >= 16 * kMany; c += 16 * kMany) DeltaBlock<L, kMany, false>{16 * kMany}.run(a, c);
  for (; end - c >= 16; c += 16) DeltaBlock<L, 1, false>{16}.run(a, c);
  if (c < end) DeltaBlock<L, 1, true>{end - c}.run(a, c);
}

}  // namespace
}  // namespace okibi::cpu
