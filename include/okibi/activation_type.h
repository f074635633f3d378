// What the products of quantised weights take as their activations.
#pragma once

#include <cstdint>

namespace okibi {

enum class ActivationType : uint8_t {
  // 8 bits in blocks that share a scale: for decoding, which reads no more than the file's bytes.
  kInt8,
  // bfloat16 factors, float32 sums, for weights of Q8_0, F16, BF16 and F32; the others as above. On
  // processors with AMX; elsewhere the same as kInt8. Closer to exact, much faster for many rows at
  // a time, and twice the bytes of Q8_0 and F16 in memory, so decoding is half as fast: for
  // decisions.
  kBf16,
  // Weights dequantised exactly, products in float32: slow, for checking.
  kF32,
};

}  // namespace okibi
