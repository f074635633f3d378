// The arithmetic of sampling that must give the same bits on every machine: an exponential made of
// additions and multiplications only, and a random generator. Plain functions, no state of their
// own.
#pragma once

#include <bit>
#include <cstdint>

namespace okibi::engine {

// exp(x) for x <= 0, within 3e-16 relative; 0 below -700, where a double is nearly out of numbers.
inline double portable_exp(double x) {
  if (!(x > -700)) return 0;
  // x = k ln2 + r with |r| <= ln2 / 2; ln2 in two parts, the first exact when times k.
  const double scaled = x * 1.4426950408889634;
  const int64_t k =
      static_cast<int64_t>(scaled - 0.5);  // truncates towards zero: rounds, as x <= 0
  const double r = (x - static_cast<double>(k) * 6.93147180369123816490e-01) -
                   static_cast<double>(k) * 1.90821492927058770002e-10;
  // Taylor, Horner form; the first omitted term is r^14 / 14! < 5e-18.
  double p = 1.0 / 6227020800.0;
  constexpr double kInverseFactorials[] = {1.0 / 479001600.0,
                                           1.0 / 39916800.0,
                                           1.0 / 3628800.0,
                                           1.0 / 362880.0,
                                           1.0 / 40320.0,
                                           1.0 / 5040.0,
                                           1.0 / 720.0,
                                           1.0 / 120.0,
                                           1.0 / 24.0,
                                           1.0 / 6.0,
                                           1.0 / 2.0,
                                           1.0,
                                           1.0};
  for (double c : kInverseFactorials) p = p * r + c;
  // Times 2^k: k >= -1011, so the factor is a normal number.
  return p * std::bit_cast<double>(static_cast<uint64_t>(1023 + k) << 52);
}

// Sebastiano Vigna's SplitMix64: 64 bits of state, equidistributed, good enough to pick tokens.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In [0, 1), every multiple of 2^-53.
  double next_unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace okibi::engine
