// What the amx level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/roofs.h"
#include "cpu/kernels/amx/view_attend.h"

namespace okibi::cpu::amx {

void install(KernelTable& table) {
  table.level = "amx";
  install_roofs(table);
  install_linear(table);
  install_view_attend(table);
}

}  // namespace okibi::cpu::amx
