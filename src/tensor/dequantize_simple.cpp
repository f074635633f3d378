// Blocks with one scale (or one scale byte per 16 values) and plain codes, and the two activation
// formats. In every formula at most one operation rounds, so the result is the same with any
// compiler. Nibbles of a 32-value block: low halves are values 0..15, high halves 16..31.
#include <cstring>

#include "tensor/block_io.h"
#include "tensor/codebooks.h"
#include "tensor/dequantize_blocks.h"

namespace okibi::blocks {
namespace {

// Code i of 16 bytes that hold 32 nibbles.
inline int nibble(const uint8_t* q, int i) {
  return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

inline int code5(const uint8_t* q, uint32_t high, int i) {
  return nibble(q, i) + 16 * static_cast<int>((high >> i) & 1u);
}

// Half of the E8M0 scale 2^(e - 127), because the FP4 table is doubled.
inline float half_e8m0(uint8_t e) {
  return bits_to_float(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// Half of the unsigned E4M3 scale; 0x7f is the format's NaN and counts as zero here.
inline float half_ue4m3(uint8_t b) {
  const int exponent = (b >> 3) & 15, mantissa = b & 7;
  if ((b & 0x7f) == 0 || (b & 0x7f) == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  const float significand = 1.0f + static_cast<float>(mantissa) * 0.125f;
  return significand * bits_to_float(static_cast<uint32_t>(exponent - 8 + 127) << 23);
}

}  // namespace

void dequantize_q4_0(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(nibble(b + 2, i) - 8);
}

void dequantize_q4_1(const uint8_t* b, float* x) {
  const float d = load_f16(b), m = load_f16(b + 2);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}

void dequantize_q5_0(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint32_t high = load_u32(b + 2);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(code5(b + 6, high, i) - 16);
}

void dequantize_q5_1(const uint8_t* b, float* x) {
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint32_t high = load_u32(b + 4);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(code5(b + 8, high, i)) + m;
}

void dequantize_q8_0(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

void dequantize_q8_1(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(static_cast<int8_t>(b[4 + i]));
}

void dequantize_q8_k(const uint8_t* b, float* x) {
  const float d = bits_to_float(load_u32(b));
  for (int i = 0; i < 256; ++i) x[i] = d * static_cast<float>(static_cast<int8_t>(b[4 + i]));
}

void dequantize_q1_0(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 128; ++i) x[i] = (b[2 + (i >> 3)] >> (i & 7)) & 1 ? d : -d;
}

void dequantize_q2_0(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 64; ++i) {
    x[i] = d * static_cast<float>(((b[2 + (i >> 2)] >> (2 * (i & 3))) & 3) - 1);
  }
}

void dequantize_tq1_0(const uint8_t* b, float* x) {
  const uint8_t* qh = b + 48;
  const float d = load_f16(b + 52);
  for (int i = 0; i < 256; ++i) {
    int n;  // which of the five trits of the byte
    uint8_t packed;
    if (i < 160) {
      n = i / 32;
      packed = b[i % 32];
    } else if (i < 240) {
      n = (i - 160) / 16;
      packed = b[32 + (i - 160) % 16];
    } else {
      n = (i - 240) / 4;
      packed = qh[(i - 240) % 4];
    }
    const int trit = (static_cast<uint8_t>(packed * kPow3[n]) * 3) >> 8;
    x[i] = d * static_cast<float>(trit - 1);
  }
}

void dequantize_tq2_0(const uint8_t* b, float* x) {
  const float d = load_f16(b + 64);
  for (int i = 0; i < 256; ++i) {
    const int h = i >> 7, k = (i >> 5) & 3, l = i & 31;
    x[i] = d * static_cast<float>(((b[32 * h + l] >> (2 * k)) & 3) - 1);
  }
}

void dequantize_mxfp4(const uint8_t* b, float* x) {
  const float d = half_e8m0(b[0]);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(kFp4ValuesX2[nibble(b + 1, i)]);
}

void dequantize_nvfp4(const uint8_t* b, float* x) {
  for (int i = 0; i < 64; ++i) {
    const int s = i >> 4, r = i & 15;
    const uint8_t byte = b[4 + 8 * s + (r & 7)];
    const int code = r < 8 ? byte & 15 : byte >> 4;
    x[i] = half_ue4m3(b[s]) * static_cast<float>(kFp4ValuesX2[code]);
  }
}

}  // namespace okibi::blocks
