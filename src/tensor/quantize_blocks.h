// One block of floats to each quantised type, grouped by family. Private to tensor/: users call
// quantize_row, which has checked that every value is finite. `x` holds block_size values, `b`
// receives block_bytes. False: a scale or minimum does not fit f16; `b` is then unspecified.
// Everything is float32 in the written order, because the bytes are compared with other tools'.
#pragma once

#include <cstdint>

#include "tensor/block_io.h"

namespace okibi::blocks {

// quantize_simple.cpp
bool quantize_q8_0(const float* x, uint8_t* b);
bool quantize_q8_1(const float* x, uint8_t* b);
bool quantize_q8_k(const float* x, uint8_t* b);
bool quantize_q4_0(const float* x, uint8_t* b);
bool quantize_q4_1(const float* x, uint8_t* b);
bool quantize_q5_0(const float* x, uint8_t* b);
bool quantize_q5_1(const float* x, uint8_t* b);
bool quantize_mxfp4(const float* x, uint8_t* b);

// quantize_k.cpp
bool quantize_q4_k(const float* x, uint8_t* b);
bool quantize_q5_k(const float* x, uint8_t* b);
bool quantize_q6_k(const float* x, uint8_t* b);

// quantize_iq4.cpp
bool quantize_iq4_nl(const float* x, uint8_t* b);
bool quantize_iq4_xs(const float* x, uint8_t* b);

// The searching types sum cubes of values; beyond this the scale cannot fit f16 anyway.
constexpr float kSearchLimit = 1e9f;

// Half to even, for values already clamped to |v| <= 2^21: the addition leaves the integer in the
// low mantissa bits. Unlike lrintf it vectorises on every x86-64.
inline int32_t round_even(float v) {
  return static_cast<int32_t>(float_to_bits(v + 12582912.0f) & 0x007fffffu) - 0x00400000;
}
// Clamps; a NaN (0 * inf from a vanishing range) becomes the lower bound.
inline float clamp_to(float v, float low, float high) {
  const float raised = v > low ? v : low;
  return raised < high ? raised : high;
}
inline int32_t round_clamped(float v, int low, int high) {
  return round_even(clamp_to(v, static_cast<float>(low), static_cast<float>(high)));
}

// Where a reciprocal overflows (the scale is below 2^-128) the scale counts as zero.
inline float safe_reciprocal(float d) {
  const float r = d != 0.0f ? 1.0f / d : 0.0f;
  return r - r == 0.0f ? r : 0.0f;
}

inline bool store_f16_if_finite(uint8_t* p, float v) {
  const uint16_t h = float_to_f16(v);
  store_u16(p, h);
  return (h & 0x7c00u) != 0x7c00u;
}

// The value of largest magnitude with its sign, the first one on ties.
inline float signed_max(const float* x, int n) {
  float best = 0.0f, best_magnitude = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
    if (magnitude > best_magnitude) {
      best_magnitude = magnitude;
      best = x[i];
    }
  }
  return best;
}

}  // namespace okibi::blocks
