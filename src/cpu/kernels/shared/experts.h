// Routing and the weighted sum of experts over the lanes of a level (L: see any level's lanes.h).
#pragma once

#include <cstdint>

namespace okibi::cpu {
namespace {

template <class L>
void softmax(const float* x, int64_t n, float* p) {
  // The last vector, repeated values in place of those past the end; one without values past none.
  const int64_t whole = n / 16 * 16, left = n - whole;
  float last[16];
  for (int64_t i = 0; i < 16; ++i) last[i] = i < left ? x[whole + i] : x[0];
  auto largest = L::load(last);
  for (int64_t i = 0; i < whole; i += 16) largest = L::max(largest, L::load(x + i));
  float lanes[16];
  L::store(lanes, largest);
  float m = lanes[0];
  for (int64_t i = 1; i < 16; ++i) m = lanes[i] > m ? lanes[i] : m;
  const auto top = L::splat(m);
  auto sums = L::zero();
  for (int64_t i = 0; i < whole; i += 16) {
    const auto e = L::exp_nonpositive(L::sub(L::load(x + i), top));
    L::store(p + i, e);
    sums = L::add(sums, e);
  }
  L::store(last, L::exp_nonpositive(L::sub(L::load(last), top)));
  if (left > 0) {
    sums = L::add(sums, L::load(last, left));
    L::store(p + whole, L::load(last, left), left);
  }
  const auto total = L::splat(L::sum(sums));
  for (int64_t i = 0; i < n; i += 16) L::store(p + i, L::div(L::load(p + i, n - i), total), n - i);
}

template <class L>
void weighted_sum(const float* const* rows, const float* weights, int32_t n_rows, int64_t n,
                  float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    auto sum = L::mul(L::splat(weights[0]), L::load(rows[0] + i, n - i));
    for (int32_t j = 1; j < n_rows; ++j) {
      sum = L::fma(L::splat(weights[j]), L::load(rows[j] + i, n - i), sum);
    }
    L::store(out + i, sum, n - i);
  }
}

}  // namespace
}  // namespace okibi::cpu
