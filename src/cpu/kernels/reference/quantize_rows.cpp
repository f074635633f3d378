// Activation rows to the two int8 formats of kernel_table.h.
#include "base/f16.h"
#include "cpu/kernels/reference/linear.h"

namespace okibi::cpu::reference {
namespace {

// Below this the inverse scale would overflow; the block counts as zero.
constexpr float kSmallest = 1e-30f;

// Round half to even for |v| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
int32_t round_even(float v) {
  constexpr float kShift = 12582912.0f;
  return static_cast<int32_t>(float_to_bits(v + kShift)) - static_cast<int32_t>(0x4b400000);
}

// Returns the block's scale.
float quantize_block(const float* x, int n, int8_t* q) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float magnitude = bits_to_float(float_to_bits(x[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest < kSmallest) {
    for (int i = 0; i < n; ++i) q[i] = 0;
    return 0.0f;
  }
  const float inverse = 127.0f / largest;
  for (int i = 0; i < n; ++i) q[i] = static_cast<int8_t>(round_even(x[i] * inverse));
  return largest / 127.0f;
}

int32_t sum(const int8_t* q, int n) {
  int32_t total = 0;
  for (int i = 0; i < n; ++i) total += q[i];
  return total;
}

}  // namespace

void quantize_q8b32(const float* x, int64_t n, int8_t* q, float* d, int32_t* sums32) {
  for (int64_t b = 0; b < n / 32; ++b) {
    d[b] = quantize_block(x + 32 * b, 32, q + 32 * b);
    sums32[b] = sum(q + 32 * b, 32);
  }
}

void quantize_q8b256(const float* x, int64_t n, int8_t* q, float* d, int16_t* sums16) {
  for (int64_t b = 0; b < n / 256; ++b) {
    d[b] = quantize_block(x + 256 * b, 256, q + 256 * b);
    for (int64_t g = 16 * b; g < 16 * b + 16; ++g) {
      sums16[g] = static_cast<int16_t>(sum(q + 16 * g, 16));
    }
  }
}

}  // namespace okibi::cpu::reference
