// What the avx512 level brings to the kernel table.
#include "cpu/kernel_table.h"
#include "cpu/kernels/avx512/linear_f32.h"
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/roofs.h"

namespace okibi::cpu::avx512 {

void install(KernelTable& table) {
  table.level = "avx512";
  install_linear_f32(table);
  install_roofs(table);
  install_elementwise(table);
  install_vision(table);
  install_rope(table);
  install_short_conv(table);
  install_kv_store(table);
  install_attend(table);
  install_linear(table);
}

}  // namespace okibi::cpu::avx512
