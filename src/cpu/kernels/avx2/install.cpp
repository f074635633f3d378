// What the avx2 level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/avx2/roofs.h"
#include "cpu/kernels/avx2/linear.h"

namespace okibi::cpu::avx2 {

void install(KernelTable& table) {
  table.level = "avx2";
  install_roofs(table);
  install_linear(table);
}

}  // namespace okibi::cpu::avx2
