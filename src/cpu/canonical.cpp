// Block formats of 32 values to the common form, and the choice of the routine by type. The formats
// of 256 values stand in canonical256.cpp.
#include "cpu/canonical.h"

#include <cstring>

#include "base/check.h"
#include "cpu/canonical256.h"
#include "cpu/weight_types.h"
#include "tensor/block_io.h"
#include "tensor/codebooks.h"
#include "tensor/dequantize.h"
#include "tensor/dtype.h"

namespace okibi::cpu {
namespace {

static_assert(weight::kF32 == int(DType::kF32) && weight::kF16 == int(DType::kF16) &&
              weight::kBF16 == int(DType::kBF16) && weight::kQ4_0 == int(DType::kQ4_0) &&
              weight::kQ4_1 == int(DType::kQ4_1) && weight::kQ5_0 == int(DType::kQ5_0) &&
              weight::kQ5_1 == int(DType::kQ5_1) && weight::kQ8_0 == int(DType::kQ8_0) &&
              weight::kQ2_K == int(DType::kQ2_K) && weight::kQ3_K == int(DType::kQ3_K) &&
              weight::kQ4_K == int(DType::kQ4_K) && weight::kQ5_K == int(DType::kQ5_K) &&
              weight::kQ6_K == int(DType::kQ6_K) && weight::kIQ2_XXS == int(DType::kIQ2_XXS) &&
              weight::kIQ2_XS == int(DType::kIQ2_XS) && weight::kIQ3_XXS == int(DType::kIQ3_XXS) &&
              weight::kIQ1_S == int(DType::kIQ1_S) && weight::kIQ4_NL == int(DType::kIQ4_NL) &&
              weight::kIQ3_S == int(DType::kIQ3_S) && weight::kIQ2_S == int(DType::kIQ2_S) &&
              weight::kIQ4_XS == int(DType::kIQ4_XS) && weight::kIQ1_M == int(DType::kIQ1_M) &&
              weight::kTQ1_0 == int(DType::kTQ1_0) && weight::kTQ2_0 == int(DType::kTQ2_0) &&
              weight::kMXFP4 == int(DType::kMXFP4) && weight::kNVFP4 == int(DType::kNVFP4) &&
              weight::kQ1_0 == int(DType::kQ1_0) && weight::kQ2_0 == int(DType::kQ2_0));

// Half of the E8M0 scale 2^(e - 127): the FP4 table is doubled.
float half_e8m0(uint8_t e) {
  return bits_to_float(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// Half of the unsigned E4M3 scale; the format's NaN counts as zero.
float half_ue4m3(uint8_t b) {
  const uint32_t exponent = (b >> 3) & 15, mantissa = b & 7;
  if ((b & 0x7f) == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return bits_to_float((exponent + 119) << 23 | mantissa << 20);
}

void set_scale(CanonicalBlock32* out, float d, float m = 0.0f) {
  out->d[0] = out->d[1] = d;
  out->m = m;
}

void nibbles(const uint8_t* q, int offset, int8_t* v) {
  for (int i = 0; i < 16; ++i) {
    v[i] = static_cast<int8_t>((q[i] & 15) - offset);
    v[i + 16] = static_cast<int8_t>((q[i] >> 4) - offset);
  }
}

void fifth_bits(uint32_t high, int8_t* v) {
  for (int i = 0; i < 32; ++i) v[i] = static_cast<int8_t>(v[i] + 16 * ((high >> i) & 1));
}

void levels(const uint8_t* q, const int8_t* table, int8_t* v) {
  for (int i = 0; i < 16; ++i) {
    v[i] = table[q[i] & 15];
    v[i + 16] = table[q[i] >> 4];
  }
}

// The half of an NVFP4 block of 64 values that starts at scale byte s and code byte q.
void nvfp4(const uint8_t* s, const uint8_t* q, CanonicalBlock32* out) {
  out->m = 0.0f;
  for (int half = 0; half < 2; ++half) {
    out->d[half] = half_ue4m3(s[half]);
    for (int i = 0; i < 8; ++i) {
      const uint8_t codes = q[8 * half + i];
      out->v[16 * half + i] = kFp4ValuesX2[codes & 15];
      out->v[16 * half + i + 8] = kFp4ValuesX2[codes >> 4];
    }
  }
}

}  // namespace

void canonical_block32(int type, const uint8_t* row, int64_t index, CanonicalBlock32* out) {
  const weight::BlockShape shape = weight::shape_of(type);
  const int64_t parts = shape.values / 32;  // blocks of 32 in a block of the file
  CHECK(parts > 0, "type %d has no blocks of 32", type);
  const uint8_t* b = row + index / parts * shape.bytes;
  const int64_t part = index % parts;
  switch (type) {
    case weight::kQ4_0:
      set_scale(out, load_f16(b));
      return nibbles(b + 2, 8, out->v);
    case weight::kQ4_1:
      set_scale(out, load_f16(b), load_f16(b + 2));
      return nibbles(b + 4, 0, out->v);
    case weight::kQ5_0:
      set_scale(out, load_f16(b));
      nibbles(b + 6, 16, out->v);
      return fifth_bits(load_u32(b + 2), out->v);
    case weight::kQ5_1:
      set_scale(out, load_f16(b), load_f16(b + 2));
      nibbles(b + 8, 0, out->v);
      return fifth_bits(load_u32(b + 4), out->v);
    case weight::kQ8_0:
      set_scale(out, load_f16(b));
      std::memcpy(out->v, b + 2, 32);
      return;
    case weight::kIQ4_NL:
      set_scale(out, load_f16(b));
      return levels(b + 2, kIq4NlValues, out->v);
    case weight::kMXFP4:
      set_scale(out, half_e8m0(b[0]));
      return levels(b + 1, kFp4ValuesX2, out->v);
    case weight::kNVFP4:
      return nvfp4(b + 2 * part, b + 4 + 16 * part, out);
    case weight::kQ1_0:
      set_scale(out, load_f16(b));
      for (int i = 0; i < 32; ++i) {
        out->v[i] = (b[2 + 4 * part + (i >> 3)] >> (i & 7)) & 1 ? 1 : -1;
      }
      return;
    case weight::kQ2_0:
      set_scale(out, load_f16(b));
      for (int i = 0; i < 32; ++i) {
        out->v[i] = static_cast<int8_t>(((b[2 + 8 * part + (i >> 2)] >> (2 * (i & 3))) & 3) - 1);
      }
      return;
    default:
      CHECK(false, "type %d has no blocks of 32", type);
  }
}

void canonical_block256(int type, const uint8_t* block, CanonicalBlock256* out) {
  using namespace canonical256;
  std::memset(out->min, 0, sizeof out->min);
  out->m = 0.0f;
  switch (type) {
    case weight::kQ2_K:
      return q2_k(block, out);
    case weight::kQ3_K:
      return q3_k(block, out);
    case weight::kQ4_K:
      return q4_k(block, out);
    case weight::kQ5_K:
      return q5_k(block, out);
    case weight::kQ6_K:
      return q6_k(block, out);
    case weight::kIQ1_S:
      return iq1_s(block, out);
    case weight::kIQ1_M:
      return iq1_m(block, out);
    case weight::kIQ2_XXS:
      return iq2_xxs(block, out);
    case weight::kIQ2_XS:
      return iq2_xs(block, out);
    case weight::kIQ2_S:
      return iq2_s(block, out);
    case weight::kIQ3_XXS:
      return iq3_xxs(block, out);
    case weight::kIQ3_S:
      return iq3_s(block, out);
    case weight::kIQ4_XS:
      return iq4_xs(block, out);
    case weight::kTQ1_0:
      return tq1_0(block, out);
    case weight::kTQ2_0:
      return tq2_0(block, out);
    default:
      CHECK(false, "type %d has no blocks of 256", type);
  }
}

void dequantize_values(int type, const uint8_t* src, int64_t n, float* dst) {
  dequantize_row(static_cast<DType>(type), src, n, dst);
}

}  // namespace okibi::cpu
