// Which products the amx level brings.
#include "cpu/kernels/amx/linear.h"

namespace okibi::cpu::amx {

void install_linear(KernelTable& table) {
  install_make_tiles(table);
  install_q8b32(table);
  install_q8b256(table);
  install_generic(table);
  install_round_row(table);
  install_books(table);
  install_bf16(table);
}

}  // namespace okibi::cpu::amx
