// Attention inside a view by AMX.
#pragma once

#include "cpu/kernel_table.h"

namespace okibi::cpu::amx {

void install_view_attend(KernelTable& table);

}  // namespace okibi::cpu::amx
