// IQ4_NL and IQ4_XS: 4-bit codes into a table of uneven levels. The scale of each 32 values is
// searched: several starting factors, each followed by the least-squares scale of its codes.
#include <cmath>
#include <cstring>

#include "tensor/codebooks.h"
#include "tensor/quantize_blocks.h"

namespace okibi::blocks {
namespace {

// Halfway between neighbouring levels; a value on one belongs to the higher level.
constexpr float kMidpoints[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

// Codes of factor * x[0..31] for the nearest levels. The inner loop runs over the values, so that
// it vectorises.
void nearest_codes(const float* x, float factor, int* codes) {
  float scaled[32];
  for (int i = 0; i < 32; ++i) scaled[i] = factor * x[i];
  for (int i = 0; i < 32; ++i) codes[i] = 0;
  for (const float midpoint : kMidpoints) {
    for (int i = 0; i < 32; ++i) codes[i] += scaled[i] >= midpoint;
  }
}

// The scale of one group of 32; 0 when the group is (nearly) all zero.
float fit_levels(const float* x) {
  const float extreme = signed_max(x, 32);
  if (std::fabs(extreme) < 1e-15f) return 0.0f;
  float best = 0.0f, scale = 0.0f;
  for (int step = 0; step < 16; ++step) {
    // First the factor that maps the extreme to +127, then those around -127.
    const float c = step == 0 ? 127.0f / extreme : static_cast<float>(step - 8 - 127) / extreme;
    int codes[32];
    nearest_codes(x, c, codes);
    float sum_vx = 0.0f, sum_v2 = 0.0f;
    for (int i = 0; i < 32; ++i) {
      const float v = static_cast<float>(kIq4NlValues[codes[i]]);
      const float w = x[i] * x[i];
      sum_vx += w * v * x[i];
      sum_v2 += w * v * v;
    }
    if (sum_v2 > 0.0f && (step == 0 || sum_vx * sum_vx > best * sum_v2)) {
      scale = sum_vx / sum_v2;
      best = scale * sum_vx;
    }
  }
  return scale;
}

void pack_codes(const int* codes, uint8_t* q) {
  for (int i = 0; i < 16; ++i) q[i] = static_cast<uint8_t>(codes[i] | codes[i + 16] << 4);
}

}  // namespace

bool quantize_iq4_nl(const float* x, uint8_t* b) {
  if (std::fabs(signed_max(x, 32)) > kSearchLimit) return false;
  const float d = fit_levels(x);
  int codes[32];
  nearest_codes(x, safe_reciprocal(d), codes);
  pack_codes(codes, b + 2);
  return store_f16_if_finite(b, d);
}

bool quantize_iq4_xs(const float* x, uint8_t* b) {
  if (std::fabs(signed_max(x, 256)) > kSearchLimit) return false;
  std::memset(b, 0, 136);
  float scales[8];
  for (int g = 0; g < 8; ++g) scales[g] = fit_levels(x + 32 * g);
  const float d = -signed_max(scales, 8) / 32.0f;
  if (!store_f16_if_finite(b, d)) return false;
  const float inverse = safe_reciprocal(d);
  uint32_t high = 0;
  for (int g = 0; g < 8; ++g) {
    const int s = round_clamped(inverse * scales[g], -32, 31);
    int codes[32];
    nearest_codes(x + 32 * g, safe_reciprocal(d * static_cast<float>(s)), codes);
    pack_codes(codes, b + 8 + 16 * g);
    b[4 + (g >> 1)] |= static_cast<uint8_t>(((s + 32) & 15) << (4 * (g & 1)));
    high |= static_cast<uint32_t>((s + 32) >> 4) << (2 * g);
  }
  store_u16(b + 2, static_cast<uint16_t>(high));
  return true;
}

}  // namespace okibi::blocks
