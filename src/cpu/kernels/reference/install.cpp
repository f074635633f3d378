// What the reference level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/reference/linear.h"

namespace okibi::cpu::reference {

void install(KernelTable& table) {
  table.level = "reference";
  install_linear(table);
}

}  // namespace okibi::cpu::reference
