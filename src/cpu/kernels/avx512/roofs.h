// Adds this level's roof loops to the table; see RoofKernels.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx512 {

void install_roofs(KernelTable& table);

}  // namespace okibi::cpu::avx512
