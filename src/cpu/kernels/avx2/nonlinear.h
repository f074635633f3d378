// The operations besides matrix products at the avx2 level; each fills its part of the table.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::avx2 {

void install_elementwise(KernelTable& table);  // rms_norm, silu_mul
void install_vision(KernelTable& table);       // layer_norm, gelu
void install_rope(KernelTable& table);
void install_short_conv(KernelTable& table);
void install_kv_store(KernelTable& table);
void install_attend(KernelTable& table);

}  // namespace okibi::cpu::avx2
