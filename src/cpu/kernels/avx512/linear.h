// The parts of this level's products that install.cpp puts together; linear_*.cpp and
// quantize_rows.cpp.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx512 {

// Everything below, in one call.
void install_linear(KernelTable& table);

void install_q8b32(KernelTable& table);
void install_q8b256(KernelTable& table);
void install_generic(KernelTable& table);
void install_nvfp4(KernelTable& table);
void install_quantize(KernelTable& table);

}  // namespace okibi::cpu::avx512
