// Logistic functions over the lanes of a level (L: see any level's lanes.h). Through e^-|x|, which
// cannot overflow.
#pragma once

namespace okibi::cpu {
namespace {

// 1 / (1 + e^-x)
template <class L>
inline typename L::V sigmoid(typename L::V x) {
  const auto e = L::exp_nonpositive(L::negative_magnitude(x));
  return L::div(L::if_positive(x, L::splat(1.0f), e), L::add(L::splat(1.0f), e));
}

// x / (1 + e^-x)
template <class L>
inline typename L::V silu(typename L::V x) {
  const auto e = L::exp_nonpositive(L::negative_magnitude(x));
  return L::div(L::if_positive(x, x, L::mul(x, e)), L::add(L::splat(1.0f), e));
}

}  // namespace
}  // namespace okibi::cpu
