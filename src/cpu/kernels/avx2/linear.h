// Parts of the AVX2 level that its install.cpp puts together. Each install_* fills the entries of
// its own formats.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx2 {

// All of the below.
void install_linear(KernelTable& table);

void install_linear_b32(KernelTable& table);    // linear_b32.cpp
void install_linear_k(KernelTable& table);      // linear_k.cpp
void install_linear_iq(KernelTable& table);     // linear_iq.cpp
void install_linear_float(KernelTable& table);  // linear_float.cpp, both activation modes
void install_quantize(KernelTable& table);      // quantize_rows.cpp

}  // namespace okibi::cpu::avx2
