// Sixteen float32 lanes in plain C++, for kernels that are written once for all levels
// (kernels/shared/): the same names as in the other levels' lanes.h.
#pragma once

#include <cmath>

#include "cpu/kernels/reference/scalar_math.h"

namespace okibi::cpu::reference {
namespace {

struct Lanes {
  struct V {
    float x[kLanes];
  };
  template <typename Fn>
  static V each(const Fn& fn) {
    V v;
    for (int i = 0; i < kLanes; ++i) v.x[i] = fn(i);
    return v;
  }
  static V zero() { return splat(0.0f); }
  static V splat(float x) {
    return each([=](int) { return x; });
  }
  static V load(const float* p) {
    return each([=](int i) { return p[i]; });
  }
  // The first n lanes (all where n >= 16), the others zero.
  static V load(const float* p, int64_t n) {
    return each([=](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store(float* p, const V& v) { store(p, v, kLanes); }
  static void store(float* p, const V& v, int64_t n) {
    for (int i = 0; i < kLanes && i < n; ++i) p[i] = v.x[i];
  }
  static V add(const V& a, const V& b) {
    return each([&](int i) { return a.x[i] + b.x[i]; });
  }
  static V sub(const V& a, const V& b) {
    return each([&](int i) { return a.x[i] - b.x[i]; });
  }
  static V mul(const V& a, const V& b) {
    return each([&](int i) { return a.x[i] * b.x[i]; });
  }
  static V div(const V& a, const V& b) {
    return each([&](int i) { return a.x[i] / b.x[i]; });
  }
  static V max(const V& a, const V& b) {
    return each([&](int i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
  }
  // a b + c, rounded twice (the vector levels round once).
  static V fma(const V& a, const V& b, const V& c) {
    return each([&](int i) { return a.x[i] * b.x[i] + c.x[i]; });
  }
  // All lanes, as a tree of neighbours.
  static float sum(const V& v) { return sum_lanes(v.x); }
  // exp of non-positive lanes.
  static V exp_nonpositive(const V& v) {
    return each([&](int i) { return reference::exp_nonpositive(v.x[i]); });
  }
  // -|x|
  static V negative_magnitude(const V& v) {
    return each([&](int i) { return v.x[i] > 0.0f ? -v.x[i] : v.x[i]; });
  }
  // x > 0 ? a : b per lane.
  static V if_positive(const V& v, const V& a, const V& b) {
    return each([&](int i) { return v.x[i] > 0.0f ? a.x[i] : b.x[i]; });
  }
  static float sqrt(float x) { return std::sqrt(x); }
};

}  // namespace
}  // namespace okibi::cpu::reference
