// Attention over a list of scattered blocks at the avx512 level.
#pragma once

#include "cpu/index_kernels.h"

namespace okibi::cpu::avx512 {

void install_attend_list(IndexKernels& kernels);

}  // namespace okibi::cpu::avx512
