// The K types: super-blocks of 256 values whose groups of 16 or 32 have small integer scales under
// one or two f16 factors. Index names: h = half of 128, k = quarter of a half, l = place in a run
// of 32, g = group.
#include <cstring>

#include "tensor/block_io.h"
#include "tensor/dequantize_blocks.h"
#include "tensor/scale_pairs.h"

namespace okibi::blocks {

void dequantize_q2_k(const uint8_t* b, float* x) {
  const uint8_t *sc = b, *q = b + 16;
  const float d = load_f16(b + 80), m = load_f16(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int h = i >> 7, k = (i >> 5) & 3, l = i & 31, g = i >> 4;
    const int v = (q[32 * h + l] >> (2 * k)) & 3;
    x[i] = d * static_cast<float>(sc[g] & 15) * static_cast<float>(v) -
           m * static_cast<float>(sc[g] >> 4);
  }
}

void dequantize_q3_k(const uint8_t* b, float* x) {
  const uint8_t *mask = b, *q = b + 32, *scales = b + 96;
  const float d = load_f16(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int h = i >> 7, k = (i >> 5) & 3, l = i & 31, g = i >> 4;
    // A set mask bit means that nothing is subtracted.
    const int v = ((q[32 * h + l] >> (2 * k)) & 3) + 4 * ((mask[l] >> (i >> 5)) & 1) - 4;
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = (scales[8 + (g & 3)] >> (2 * (g >> 2))) & 3;
    x[i] = d * static_cast<float>((low | high << 4) - 32) * static_cast<float>(v);
  }
}

void dequantize_q4_k(const uint8_t* b, float* x) {
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint8_t* q = b + 16;
  for (int g = 0; g < 8; ++g) {
    const ScalePair pair = unpack_scale_pair(b + 4, g);
    const float scale = d * static_cast<float>(pair.scale);
    const float minimum = m * static_cast<float>(pair.min);
    for (int l = 0; l < 32; ++l) {
      const int v = (q[32 * (g >> 1) + l] >> (4 * (g & 1))) & 15;
      x[32 * g + l] = scale * static_cast<float>(v) - minimum;
    }
  }
}

void dequantize_q5_k(const uint8_t* b, float* x) {
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint8_t *high = b + 16, *q = b + 48;
  for (int g = 0; g < 8; ++g) {
    const ScalePair pair = unpack_scale_pair(b + 4, g);
    const float scale = d * static_cast<float>(pair.scale);
    const float minimum = m * static_cast<float>(pair.min);
    for (int l = 0; l < 32; ++l) {
      const int v = ((q[32 * (g >> 1) + l] >> (4 * (g & 1))) & 15) + 16 * ((high[l] >> g) & 1);
      x[32 * g + l] = scale * static_cast<float>(v) - minimum;
    }
  }
}

void dequantize_q6_k(const uint8_t* b, float* x) {
  const uint8_t *ql = b, *qh = b + 128;
  const float d = load_f16(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int h = i >> 7, k = (i >> 5) & 3, l = i & 31;
    const int low = (ql[64 * h + 32 * (k & 1) + l] >> (4 * (k >> 1))) & 15;
    const int high = (qh[32 * h + l] >> (2 * k)) & 3;
    const int scale = static_cast<int8_t>(b[192 + (i >> 4)]);
    x[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

}  // namespace okibi::blocks
