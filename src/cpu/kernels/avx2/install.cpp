// What the avx2 level brings to the kernel table.
#include "cpu/kernel_table.h"

namespace okibi::cpu::avx2 {

void install(KernelTable& table) { table.level = "avx2"; }

}  // namespace okibi::cpu::avx2
