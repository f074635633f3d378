// Limits as plain C++ reaches them.
#include "cpu/kernels/reference/roofs.h"

namespace okibi::cpu::reference {
namespace {

uint64_t int8_ops(uint64_t n_iterations) {
  volatile int32_t sink = 0;
  int32_t acc[8] = {};
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < 8; ++j) acc[j] += static_cast<int32_t>(i & 127) * (j + 1);
  }
  for (int32_t a : acc) sink = sink + a;
  return n_iterations * 16;
}

uint64_t float_ops(uint64_t n_iterations) {
  volatile float sink = 0;
  float acc[8] = {};
  for (uint64_t i = 0; i < n_iterations; ++i) {
    for (int j = 0; j < 8; ++j) acc[j] = acc[j] * 0.999f + 1.0f;
  }
  for (float a : acc) sink = sink + a;
  return n_iterations * 16;
}

uint64_t read(const uint8_t* data, uint64_t n) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n / 8; ++i) sum += words[i];
  return sum;
}

}  // namespace

void install_roofs(KernelTable& table) {
  table.roofs = {
      .int8_ops = int8_ops, .int8_name = "int32 multiply", .float_ops = float_ops, .read = read};
}

}  // namespace okibi::cpu::reference
