// What the avx512 level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/roofs.h"

namespace okibi::cpu::avx512 {

void install(KernelTable& table) {
  table.level = "avx512";
  install_roofs(table);
  install_linear(table);
}

}  // namespace okibi::cpu::avx512
