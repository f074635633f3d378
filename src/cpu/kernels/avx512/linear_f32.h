// Products of float activations on this level: the float weight types as they are, and every other
// type in the mode that keeps activations in float32.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx512 {

void install_linear_f32(KernelTable& table);

}  // namespace okibi::cpu::avx512
