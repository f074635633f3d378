// Quantisers that look at a block once: scale from its extremes, codes by rounding. The inverse
// scale is taken from the scale before it is rounded for storage.
#include <cmath>
#include <cstring>

#include "tensor/codebooks.h"
#include "tensor/quantize_blocks.h"

namespace okibi::blocks {
namespace {

float max_magnitude(const float* x, int n) {
  float best = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
    best = magnitude > best ? magnitude : best;
  }
  return best;
}

// Half away from zero; exact where adding 0.5 and truncating is not.
inline int round_away(float v) {
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

// Codes of Q8_0 and Q8_1; returns the unrounded scale and the sum of the codes.
float quantize_bytes(const float* x, uint8_t* q, int* sum) {
  const float d = max_magnitude(x, 32) / 127.0f;
  const float inverse = safe_reciprocal(d);
  int total = 0;
  for (int i = 0; i < 32; ++i) {
    const int code = round_away(clamp_to(x[i] * inverse, -127.0f, 127.0f));
    q[i] = static_cast<uint8_t>(static_cast<int8_t>(code));
    total += code;
  }
  *sum = total;
  return inverse != 0.0f ? d : 0.0f;
}

// trunc(v + half) limited to 0..top; v + half is never negative by construction.
inline int code_of(float v, float half, int top) {
  return static_cast<int>(clamp_to(v + half, 0.0f, static_cast<float>(top)));
}

void pack_nibbles(const int* codes, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
}

uint32_t fifth_bits(const int* codes) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
  return high;
}

// Q4_0 and Q5_0: the extreme value maps to code 0. Returns the scale, -0 for a block of zeros.
float codes_around_zero(const float* x, int levels, int* codes) {
  const float half_range = static_cast<float>(levels / 2);
  const float d = signed_max(x, 32) / -half_range;
  const float inverse = safe_reciprocal(d);
  for (int i = 0; i < 32; ++i) codes[i] = code_of(x[i] * inverse, half_range + 0.5f, levels - 1);
  return d;
}

// Q4_1 and Q5_1: the smallest value maps to code 0. Returns the scale.
float codes_from_minimum(const float* x, int levels, int* codes, float* minimum) {
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float d = (high - low) / static_cast<float>(levels - 1);
  const float inverse = safe_reciprocal(d);
  for (int i = 0; i < 32; ++i) codes[i] = code_of((x[i] - low) * inverse, 0.5f, levels - 1);
  *minimum = low;
  return d;
}

}  // namespace

bool quantize_q8_0(const float* x, uint8_t* b) {
  int sum;
  return store_f16_if_finite(b, quantize_bytes(x, b + 2, &sum));
}

bool quantize_q8_1(const float* x, uint8_t* b) {
  int sum;
  const float d = quantize_bytes(x, b + 4, &sum);
  const bool scale_fits = store_f16_if_finite(b, d);
  return store_f16_if_finite(b + 2, d * static_cast<float>(sum)) && scale_fits;
}

bool quantize_q8_k(const float* x, uint8_t* b) {
  const float extreme = signed_max(x, 256);
  const float c = extreme != 0.0f ? -127.0f / extreme : 0.0f;
  std::memset(b, 0, 292);
  if (c == 0.0f || c - c != 0.0f) return true;
  for (int t = 0; t < 16; ++t) {
    int sum = 0;
    for (int i = 16 * t; i < 16 * t + 16; ++i) {
      const int code = round_clamped(c * x[i], -128, 127);
      b[4 + i] = static_cast<uint8_t>(static_cast<int8_t>(code));
      sum += code;
    }
    store_u16(b + 260 + 2 * t, static_cast<uint16_t>(static_cast<int16_t>(sum)));
  }
  store_u32(b, float_to_bits(1.0f / c));
  return true;
}

bool quantize_q4_0(const float* x, uint8_t* b) {
  int codes[32];
  const float d = codes_around_zero(x, 16, codes);
  pack_nibbles(codes, b + 2);
  return store_f16_if_finite(b, d);
}

bool quantize_q4_1(const float* x, uint8_t* b) {
  int codes[32];
  float minimum;
  const float d = codes_from_minimum(x, 16, codes, &minimum);
  pack_nibbles(codes, b + 4);
  const bool scale_fits = store_f16_if_finite(b, d);
  return store_f16_if_finite(b + 2, minimum) && scale_fits;
}

bool quantize_q5_0(const float* x, uint8_t* b) {
  int codes[32];
  const float d = codes_around_zero(x, 32, codes);
  store_u32(b + 2, fifth_bits(codes));
  pack_nibbles(codes, b + 6);
  return store_f16_if_finite(b, d);
}

bool quantize_q5_1(const float* x, uint8_t* b) {
  int codes[32];
  float minimum;
  const float d = codes_from_minimum(x, 32, codes, &minimum);
  store_u32(b + 4, fifth_bits(codes));
  pack_nibbles(codes, b + 8);
  const bool scale_fits = store_f16_if_finite(b, d);
  return store_f16_if_finite(b + 2, minimum) && scale_fits;
}

bool quantize_mxfp4(const float* x, uint8_t* b) {
  // The biased exponent of the largest magnitude is floor(log2) + 127 (subnormals end at 0 anyway);
  // 2 is the exponent of the largest FP4 value's octave.
  const uint32_t bits = float_to_bits(max_magnitude(x, 32));
  int e = static_cast<int>(bits >> 23) - 2;
  e = e < 0 ? 0 : e;
  const float half_scale =
      bits_to_float(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
  int codes[32];
  for (int i = 0; i < 32; ++i) {
    int best = 0;
    float best_distance = std::fabs(half_scale * static_cast<float>(kFp4ValuesX2[0]) - x[i]);
    for (int k = 1; k < 16; ++k) {
      const float distance = std::fabs(half_scale * static_cast<float>(kFp4ValuesX2[k]) - x[i]);
      if (distance < best_distance) {
        best_distance = distance;
        best = k;
      }
    }
    codes[i] = best;
  }
  b[0] = static_cast<uint8_t>(e);
  pack_nibbles(codes, b + 1);
  return true;
}

}  // namespace okibi::blocks
