// Which products the avx512 level brings.
#include "cpu/kernels/avx512/linear.h"

namespace okibi::cpu::avx512 {

void install_linear(KernelTable& table) {
  install_q8b32(table);
  install_q8b256(table);
  install_generic(table);
  install_nvfp4(table);
  install_quantize(table);
}

}  // namespace okibi::cpu::avx512
