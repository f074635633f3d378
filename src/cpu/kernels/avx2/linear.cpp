// Which linear kernels the AVX2 level has.
#include "cpu/kernels/avx2/linear.h"

namespace okibi::cpu::avx2 {

void install_linear(KernelTable& table) {
  install_linear_b32(table);
  install_linear_k(table);
  install_linear_iq(table);
  install_linear_float(table);
  install_quantize(table);
}

}  // namespace okibi::cpu::avx2
