// Limit of AMX: tdpbssd on full tiles with four independent accumulators.
#include "cpu/kernels/amx/roofs.h"

#include <immintrin.h>

namespace okibi::cpu::amx {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

uint64_t int8_ops(uint64_t n_iterations) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = 64;
    config.rows[t] = 16;
  }
  alignas(64) static const uint8_t zeros[1024] = {};
  // GCC's intrinsic claims to read eight bytes; without this the other stores are dropped as dead.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, zeros, 64);
  _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64);
  _tile_loadd(7, zeros, 64);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return n_iterations * 4 * 2 * 16 * 16 * 64;
}

}  // namespace

void install_roofs(KernelTable& table) {
  table.roofs.int8_ops = int8_ops;
  table.roofs.int8_name = "tdpbssd";
}

}  // namespace okibi::cpu::amx
