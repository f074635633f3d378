// What the avx2 level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/avx2/nonlinear.h"
#include "cpu/kernels/avx2/roofs.h"
#include "cpu/kernels/avx2/linear.h"

namespace okibi::cpu::avx2 {

void install(KernelTable& table) {
  table.level = "avx2";
  install_roofs(table);
  install_linear(table);
  install_elementwise(table);
  install_vision(table);
  install_rope(table);
  install_short_conv(table);
  install_kv_store(table);
  install_attend(table);
}

}  // namespace okibi::cpu::avx2
