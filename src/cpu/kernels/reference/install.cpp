// What the reference level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/reference/linear.h"
#include "cpu/kernels/reference/roofs.h"
#include "cpu/kernels/reference/nonlinear.h"

namespace okibi::cpu::reference {

void install(KernelTable& table) {
  table.level = "reference";
  install_linear(table);
  install_roofs(table);
  install_elementwise(table);
  install_vision(table);
  install_rope(table);
  install_short_conv(table);
  install_attend(table);
}

}  // namespace okibi::cpu::reference
