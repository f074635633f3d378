// The IQ types: short runs of values stand as an index into a code book (tensor/codebooks.h) with
// separate signs, under a small integer scale per 16 or 32 values and one f16 factor. Indices are
// bounded by their bit widths, so no block content can reach outside a table.
#include <cstring>

#include "tensor/block_io.h"
#include "tensor/codebooks.h"
#include "tensor/dequantize_blocks.h"

namespace okibi::blocks {
namespace {

// `n` values of one code-book row; bit (first + j) of `signs` negates value j.
inline void signed_row(const uint8_t* row, int n, uint8_t signs, int first, float scale, float* x) {
  for (int j = 0; j < n; ++j) {
    const float value = scale * static_cast<float>(row[j]);
    x[j] = (signs >> (first + j)) & 1 ? -value : value;
  }
}

inline void shifted_row(const int8_t* row, float delta, float scale, float* x) {
  for (int j = 0; j < 8; ++j) x[j] = scale * (static_cast<float>(row[j]) + delta);
}

// The 4-bit scale of group g16 in bytes that hold two each.
inline float nibble_scale(const uint8_t* sc, int g16) {
  return static_cast<float>((sc[g16 >> 1] >> (4 * (g16 & 1))) & 15);
}

}  // namespace

void dequantize_iq2_xxs(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* group = b + 2 + 8 * g;
    const uint32_t w = load_u32(group + 4);
    const float scale = d * (0.5f + static_cast<float>(w >> 28)) * 0.25f;
    for (int k = 0; k < 4; ++k) {
      const uint8_t signs = kKSigns[(w >> (7 * k)) & 127];
      signed_row(kIq2XxsGrid[group[k]], 8, signs, 0, scale, x + 32 * g + 8 * k);
    }
  }
}

void dequantize_iq2_xs(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int n = 0; n < 32; ++n) {
    const uint16_t v = load_u16(b + 2 + 2 * n);
    const float scale = d * (0.5f + nibble_scale(b + 66, n >> 1)) * 0.25f;
    signed_row(kIq2XsGrid[v & 511], 8, kKSigns[v >> 9], 0, scale, x + 8 * n);
  }
}

void dequantize_iq2_s(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint8_t *q = b + 2, *signs = b + 34, *qh = b + 66;
  for (int n = 0; n < 32; ++n) {
    const int index = q[n] | (((qh[n >> 2] >> (2 * (n & 3))) & 3) << 8);
    const float scale = d * (0.5f + nibble_scale(b + 74, n >> 1)) * 0.25f;
    signed_row(kIq2SGrid[index], 8, signs[n], 0, scale, x + 8 * n);
  }
}

void dequantize_iq3_xxs(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint8_t* q = b + 2;
  for (int g = 0; g < 8; ++g) {
    const uint32_t w = load_u32(b + 66 + 4 * g);
    const float scale = d * (0.5f + static_cast<float>(w >> 28)) * 0.5f;
    for (int k = 0; k < 8; ++k) {  // two rows of 4 share a sign byte
      const uint8_t signs = kKSigns[(w >> (7 * (k >> 1))) & 127];
      signed_row(kIq3XxsGrid[q[8 * g + k]], 4, signs, 4 * (k & 1), scale, x + 32 * g + 4 * k);
    }
  }
}

void dequantize_iq3_s(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint8_t *q = b + 2, *qh = b + 66, *signs = b + 74, *sc = b + 106;
  for (int u = 0; u < 64; ++u) {
    const int index = q[u] | (((qh[u >> 3] >> (u & 7)) & 1) << 8);
    const float scale = d * (1.0f + 2.0f * nibble_scale(sc, u >> 3));
    signed_row(kIq3SGrid[index], 4, signs[u >> 1], 4 * (u & 1), scale, x + 4 * u);
  }
}

void dequantize_iq1_s(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint8_t* q = b + 2;
  for (int n = 0; n < 32; ++n) {
    const uint16_t h = load_u16(b + 34 + 2 * (n >> 2));
    const int index = q[n] | (((h >> (3 * (n & 3))) & 7) << 8);
    const float scale = d * static_cast<float>(2 * ((h >> 12) & 7) + 1);
    shifted_row(kIq1Grid[index], h & 0x8000 ? -0.125f : 0.125f, scale, x + 8 * n);
  }
}

void dequantize_iq1_m(const uint8_t* b, float* x) {
  const uint8_t *q = b, *qh = b + 32;
  uint16_t c[4];
  std::memcpy(c, b + 48, sizeof c);
  // The f16 factor is spread over the top nibbles of the four scale words.
  const float d = f16_to_float(static_cast<uint16_t>((c[0] >> 12) | (c[1] >> 12) << 4 |
                                                     (c[2] >> 12) << 8 | (c[3] >> 12) << 12));
  for (int n = 0; n < 32; ++n) {
    const int g16 = n >> 1;
    const int high = (qh[n >> 1] >> (4 * (n & 1))) & 15;
    const int index = q[n] | ((high & 7) << 8);
    const float scale = d * static_cast<float>(2 * ((c[g16 >> 2] >> (3 * (g16 & 3))) & 7) + 1);
    shifted_row(kIq1Grid[index], high & 8 ? -0.125f : 0.125f, scale, x + 8 * n);
  }
}

void dequantize_iq4_nl(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>(kIq4NlValues[b[2 + i] & 15]);
    x[i + 16] = d * static_cast<float>(kIq4NlValues[b[2 + i] >> 4]);
  }
}

void dequantize_iq4_xs(const uint8_t* b, float* x) {
  const float d = load_f16(b);
  const uint16_t high = load_u16(b + 2);
  const uint8_t* low = b + 4;
  for (int g = 0; g < 8; ++g) {
    const int s = ((low[g >> 1] >> (4 * (g & 1))) & 15) | (((high >> (2 * g)) & 3) << 4);
    const float scale = d * static_cast<float>(s - 32);
    const uint8_t* q = b + 8 + 16 * g;
    for (int l = 0; l < 16; ++l) {
      x[32 * g + l] = scale * static_cast<float>(kIq4NlValues[q[l] & 15]);
      x[32 * g + l + 16] = scale * static_cast<float>(kIq4NlValues[q[l] >> 4]);
    }
  }
}

}  // namespace okibi::blocks
