// The arithmetic that the non-linear kernels of the reference level share: 16-lane sums and an
// exponential, in the order and with the polynomial of the vector levels but without fused
// multiply-adds. No libm.
#pragma once

#include <cstdint>

#include "base/f16.h"

namespace okibi::cpu::reference {

constexpr int kLanes = 16;

// Adds 16 lanes as a tree of neighbours.
inline float sum_lanes(const float* lanes) {
  float s[kLanes];
  for (int i = 0; i < kLanes; ++i) s[i] = lanes[i];
  for (int n = kLanes / 2; n >= 1; n /= 2) {
    for (int i = 0; i < n; ++i) s[i] = s[2 * i] + s[2 * i + 1];
  }
  return s[0];
}

// exp(x) for x <= 0, at most 2 units in the last place off; 0 below the smallest normal result.
//   x = k ln2 + r, |r| <= ln2 / 2;  e^r = 1 + (r + r^2 P(r)), P of degree 4 fitted to a relative
//   error of 3.1e-9 (a twentieth of float32's rounding).
// ln2 is split so that k * kLn2High is exact for every k that occurs.
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kExpLowest = -0x1.5d589ep+6f;  // ln(2^-126)
constexpr float kExpP0 = 0x1.fffffcp-2f, kExpP1 = 0x1.555492p-3f, kExpP2 = 0x1.5558f2p-5f;
constexpr float kExpP3 = 0x1.123a20p-7f, kExpP4 = 0x1.6a23cep-10f;

inline float exp_nonpositive(float x) {
  if (x < kExpLowest) return 0.0f;
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds to the nearest integer
  const float k = (x * kLog2E + kRound) - kRound;
  const float r = (x - k * kLn2High) - k * kLn2Low;
  const float p = (((kExpP4 * r + kExpP3) * r + kExpP2) * r + kExpP1) * r + kExpP0;
  const float y = 1.0f + (r + r * r * p);
  return y * bits_to_float(static_cast<uint32_t>(static_cast<int32_t>(k) + 127) << 23);
}

// GELU. 2 sqrt(2 / pi) and that times 0.044715; and the lower tail of the normal distribution,
//   Phi(-a) = e^(-a^2 / 2) t P(t),  t = 1 / (1 + kPhiT a),  a >= 0,
// P of degree 7 fitted to a relative error of 1.3e-7 for a up to 13.3, where e^(-a^2 / 2) ends.
constexpr float kGeluLinear = 0x1.988454p+0f, kGeluCubic = 0x1.2444f2p-4f;
constexpr float kPhiT = 0x1.333334p-2f;
constexpr float kPhiP[8] = {0x1.e9fc0cp-4f, 0x1.eede32p-4f, 0x1.97a278p-4f, 0x1.09f03p-3f,
                            -0x1.cbacfp-5f, 0x1.abfee2p-3f, -0x1.4510dp-3f, 0x1.273a5ep-5f};

}  // namespace okibi::cpu::reference
