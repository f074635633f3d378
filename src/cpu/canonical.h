// Quantised blocks of every type brought to one common form: int8 values under small integer scales
// and float factors, the form in which kernel_table.h states the arithmetic. Plain C++ compiled for
// the baseline; kernels of all levels may call it, and use it where a type has no code of its own.
// Holds declarations and plain data only, so ISA files may include it.
#pragma once

#include <cstdint>

namespace okibi::cpu {

// 32 values of a kQ8B32 type: value i is d[i / 16] * v[i] + m. d[0] = d[1] except in NVFP4; m is 0
// except in Q4_1 and Q5_1.
struct CanonicalBlock32 {
  float d[2];
  float m;
  int8_t v[32];
};

// A super-block of a kQ8B256 type: value i is d * scale[i / 16] * v[i] - m * min[i / 16]. m and min
// are 0 except in Q2_K, Q4_K, Q5_K.
struct CanonicalBlock256 {
  float d;
  float m;
  int8_t v[256];
  int16_t scale[16];
  int16_t min[16];
};

// `type` is a weight type of the right activation format (weight_types.h); `row` is the file row
// and `index` counts blocks of 32 from its beginning, whatever the type's own block size is.
void canonical_block32(int type, const uint8_t* row, int64_t index, CanonicalBlock32* out);
// `block` is the super-block in the file's form.
void canonical_block256(int type, const uint8_t* block, CanonicalBlock256* out);

// dequantize_row for callers that know types as numbers.
void dequantize_values(int type, const uint8_t* src, int64_t n, float* dst);

}  // namespace okibi::cpu
