// What the avx512 level brings to the kernel table.
#include "cpu/kernel_table.h"

namespace okibi::cpu::avx512 {

void install(KernelTable& table) { table.level = "avx512"; }

}  // namespace okibi::cpu::avx512
