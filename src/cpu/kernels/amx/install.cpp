// What the amx level brings to the kernel table.
#include "cpu/kernel_table.h"

namespace okibi::cpu::amx {

void install(KernelTable& table) { table.level = "amx"; }

}  // namespace okibi::cpu::amx
