// Super-blocks of 256 values to the common form. Index names as in tensor/dequantize_k.cpp: h =
// half of 128, k = quarter of a half, l = place in a run of 32, g = group. Factors that the formats
// state as halves and eighths are taken out of the integer scale into d, where they are exact.
#include "cpu/canonical256.h"

#include <cstring>

#include "tensor/block_io.h"
#include "tensor/codebooks.h"
#include "tensor/scale_pairs.h"

namespace okibi::cpu::canonical256 {
namespace {

int two_bits(const uint8_t* q, int i) {
  return (q[32 * (i >> 7) + (i & 31)] >> (2 * ((i >> 5) & 3))) & 3;
}

// The 4-bit scale s of group g16 in bytes that hold two each, as 2s + 1.
int16_t odd_nibble(const uint8_t* sc, int g16) {
  return static_cast<int16_t>(2 * ((sc[g16 >> 1] >> (4 * (g16 & 1))) & 15) + 1);
}

void signed_row(const uint8_t* row, int n, int signs, int8_t* v) {
  for (int j = 0; j < n; ++j) v[j] = static_cast<int8_t>((signs >> j) & 1 ? -row[j] : row[j]);
}

// 8 * (row + delta) for delta = +-1/8.
void shifted_row(const int8_t* row, bool negative, int8_t* v) {
  for (int j = 0; j < 8; ++j) v[j] = static_cast<int8_t>(8 * row[j] + (negative ? -1 : 1));
}

void ones(CanonicalBlock256* out) {
  for (int16_t& s : out->scale) s = 1;
}

void scale_pairs(const uint8_t* s, CanonicalBlock256* out) {
  for (int g = 0; g < 16; ++g) {
    const blocks::ScalePair pair = blocks::unpack_scale_pair(s, g >> 1);
    out->scale[g] = pair.scale;
    out->min[g] = pair.min;
  }
}

}  // namespace

void q2_k(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b + 80);
  out->m = load_f16(b + 82);
  for (int i = 0; i < 256; ++i) out->v[i] = static_cast<int8_t>(two_bits(b + 16, i));
  for (int g = 0; g < 16; ++g) {
    out->scale[g] = b[g] & 15;
    out->min[g] = b[g] >> 4;
  }
}

void q3_k(const uint8_t* b, CanonicalBlock256* out) {
  const uint8_t* s = b + 96;
  out->d = load_f16(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int kept = (b[i & 31] >> (i >> 5)) & 1;  // a set mask bit: nothing is subtracted
    out->v[i] = static_cast<int8_t>(two_bits(b + 32, i) + 4 * kept - 4);
  }
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    const int high = (s[8 + (g & 3)] >> (2 * (g >> 2))) & 3;
    out->scale[g] = static_cast<int16_t>((low | high << 4) - 32);
  }
}

void q4_k(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b);
  out->m = load_f16(b + 2);
  scale_pairs(b + 4, out);
  for (int i = 0; i < 256; ++i) {
    out->v[i] =
        static_cast<int8_t>((b[16 + 32 * (i >> 6) + (i & 31)] >> (4 * ((i >> 5) & 1))) & 15);
  }
}

void q5_k(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b);
  out->m = load_f16(b + 2);
  scale_pairs(b + 4, out);
  for (int i = 0; i < 256; ++i) {
    const int low = (b[48 + 32 * (i >> 6) + (i & 31)] >> (4 * ((i >> 5) & 1))) & 15;
    out->v[i] = static_cast<int8_t>(low + 16 * ((b[16 + (i & 31)] >> (i >> 5)) & 1));
  }
}

void q6_k(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int h = i >> 7, k = (i >> 5) & 3, l = i & 31;
    const int low = (b[64 * h + 32 * (k & 1) + l] >> (4 * (k >> 1))) & 15;
    const int high = (b[128 + 32 * h + l] >> (2 * k)) & 3;
    out->v[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (int g = 0; g < 16; ++g) out->scale[g] = static_cast<int8_t>(b[192 + g]);
}

void iq1_s(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b) * 0.125f;
  for (int n = 0; n < 32; ++n) {
    const uint16_t h = load_u16(b + 34 + 2 * (n >> 2));
    const int index = b[2 + n] | (((h >> (3 * (n & 3))) & 7) << 8);
    shifted_row(kIq1Grid[index], h & 0x8000, out->v + 8 * n);
    out->scale[n >> 1] = static_cast<int16_t>(2 * ((h >> 12) & 7) + 1);
  }
}

void iq1_m(const uint8_t* b, CanonicalBlock256* out) {
  uint16_t c[4];
  std::memcpy(c, b + 48, sizeof c);
  // The f16 factor is spread over the top nibbles of the four scale words.
  const int bits = (c[0] >> 12) | (c[1] >> 12) << 4 | (c[2] >> 12) << 8 | (c[3] >> 12) << 12;
  out->d = f16_to_float(static_cast<uint16_t>(bits)) * 0.125f;
  for (int n = 0; n < 32; ++n) {
    const int high = (b[32 + (n >> 1)] >> (4 * (n & 1))) & 15;
    const int index = b[n] | ((high & 7) << 8);
    shifted_row(kIq1Grid[index], high & 8, out->v + 8 * n);
  }
  for (int g = 0; g < 16; ++g) {
    out->scale[g] = static_cast<int16_t>(2 * ((c[g >> 2] >> (3 * (g & 3))) & 7) + 1);
  }
}

void iq2_xxs(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* group = b + 2 + 8 * g;
    const uint32_t w = load_u32(group + 4);
    out->scale[2 * g] = out->scale[2 * g + 1] = static_cast<int16_t>(2 * (w >> 28) + 1);
    for (int k = 0; k < 4; ++k) {
      const int signs = kKSigns[(w >> (7 * k)) & 127];
      signed_row(kIq2XxsGrid[group[k]], 8, signs, out->v + 32 * g + 8 * k);
    }
  }
}

void iq2_xs(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b) * 0.125f;
  for (int n = 0; n < 32; ++n) {
    const uint16_t word = load_u16(b + 2 + 2 * n);
    signed_row(kIq2XsGrid[word & 511], 8, kKSigns[word >> 9], out->v + 8 * n);
  }
  for (int g = 0; g < 16; ++g) out->scale[g] = odd_nibble(b + 66, g);
}

void iq2_s(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b) * 0.125f;
  for (int n = 0; n < 32; ++n) {
    const int index = b[2 + n] | (((b[66 + (n >> 2)] >> (2 * (n & 3))) & 3) << 8);
    signed_row(kIq2SGrid[index], 8, b[34 + n], out->v + 8 * n);
  }
  for (int g = 0; g < 16; ++g) out->scale[g] = odd_nibble(b + 74, g);
}

void iq3_xxs(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t w = load_u32(b + 66 + 4 * g);
    out->scale[2 * g] = out->scale[2 * g + 1] = static_cast<int16_t>(2 * (w >> 28) + 1);
    for (int k = 0; k < 8; ++k) {  // two rows of 4 share a sign byte
      const int signs = kKSigns[(w >> (7 * (k >> 1))) & 127] >> (4 * (k & 1));
      signed_row(kIq3XxsGrid[b[2 + 8 * g + k]], 4, signs, out->v + 32 * g + 4 * k);
    }
  }
}

void iq3_s(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b);
  for (int u = 0; u < 64; ++u) {
    const int index = b[2 + u] | (((b[66 + (u >> 3)] >> (u & 7)) & 1) << 8);
    signed_row(kIq3SGrid[index], 4, b[74 + (u >> 1)] >> (4 * (u & 1)), out->v + 4 * u);
  }
  for (int g = 0; g < 16; ++g) out->scale[g] = odd_nibble(b + 106, g >> 1);
}

void iq4_xs(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b);
  const int high = load_u16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int s = ((b[4 + (g >> 1)] >> (4 * (g & 1))) & 15) | (((high >> (2 * g)) & 3) << 4);
    out->scale[2 * g] = out->scale[2 * g + 1] = static_cast<int16_t>(s - 32);
    for (int l = 0; l < 16; ++l) {
      out->v[32 * g + l] = kIq4NlValues[b[8 + 16 * g + l] & 15];
      out->v[32 * g + l + 16] = kIq4NlValues[b[8 + 16 * g + l] >> 4];
    }
  }
}

void tq1_0(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b + 52);
  ones(out);
  // Five trits per byte: runs of 32 and 16 bytes give five strides each, the last 4 bytes four.
  struct Run {
    int byte, n_bytes, n_trits;
  };
  constexpr Run kRuns[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  int8_t* v = out->v;
  for (const Run& run : kRuns) {
    for (int n = 0; n < run.n_trits; ++n) {
      for (int i = 0; i < run.n_bytes; ++i) {
        const int top = static_cast<uint8_t>(b[run.byte + i] * kPow3[n]);
        *v++ = static_cast<int8_t>(((top * 3) >> 8) - 1);
      }
    }
  }
}

void tq2_0(const uint8_t* b, CanonicalBlock256* out) {
  out->d = load_f16(b + 64);
  ones(out);
  for (int i = 0; i < 256; ++i) out->v[i] = static_cast<int8_t>(two_bits(b, i) - 1);
}

}  // namespace okibi::cpu::canonical256
