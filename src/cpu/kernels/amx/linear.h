// The parts of this level's products that install.cpp puts together; each stands in linear_*.cpp.
// But for linear_books.cpp the layouts, packing and gemv are those of avx512, which must be
// installed before.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::amx {

// Everything below, in one call.
void install_linear(KernelTable& table);

void install_make_tiles(KernelTable& table);
void install_q8b32(KernelTable& table);
void install_q8b256(KernelTable& table);
void install_generic(KernelTable& table);
void install_round_row(KernelTable& table);
void install_books(KernelTable& table);
void install_bf16(KernelTable& table);

}  // namespace okibi::cpu::amx
