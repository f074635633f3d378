// Parts of the reference level that its install.cpp puts together.
#pragma once

#include <cstring>

#include "cpu/kernel_table.h"
#include "cpu/weight_types.h"

namespace okibi::cpu::reference {

// The layout of this level: a panel is one row in the file's form.
template <int kType>
int64_t panel_bytes(int64_t n_in) {
  constexpr weight::BlockShape kShape = weight::shape_of(kType);
  return n_in / kShape.values * kShape.bytes;
}
template <int kType>
void pack(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  std::memcpy(panel, rows, static_cast<size_t>(n_rows * panel_bytes<kType>(n_in)));
}
template <int kType>
void unpack(const uint8_t* panel, int64_t n_in, int32_t, uint8_t* file_row) {
  std::memcpy(file_row, panel, static_cast<size_t>(panel_bytes<kType>(n_in)));
}

// Products with every weight type, in both activation modes, and the activation quantisers.
void install_linear(KernelTable& table);

// linear_f32.cpp: the kernels of a type for float activations.
LinearKernels float_kernels(int type);

void quantize_q8b32(const float* x, int64_t n, int8_t* q, float* d, int32_t* sums32);
void quantize_q8b256(const float* x, int64_t n, int8_t* q, float* d, int16_t* sums16);

}  // namespace okibi::cpu::reference
