// What the reference level brings to the kernel table.
#include "cpu/kernel_table.h"

namespace okibi::cpu::reference {

void install(KernelTable& table) { table.level = "reference"; }

}  // namespace okibi::cpu::reference
