// Limits of AMX: tdpbssd and tdpbf16ps on full tiles with four independent accumulators.
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

// Factors: 1 KiB, for all four of their tiles.
void prepare_tiles(const void* factors) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = 64;
    config.rows[t] = 16;
  }
  // GCC's intrinsic claims to read eight bytes; without this the other stores are dropped as dead.
  __asm__ volatile("" : : "r"(&config), "r"(factors) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, factors, 64);
  _tile_loadd(5, factors, 64);
  _tile_loadd(6, factors, 64);
  _tile_loadd(7, factors, 64);
}

// Independent products; the operations done.
template <bool kIsBf16>
uint64_t multiply(const void* factors, uint64_t n_iterations) {
  prepare_tiles(factors);
  for (uint64_t i = 0; i < n_iterations; ++i) {
    if constexpr (kIsBf16) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    } else {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_release();
  return n_iterations * 4 * 2 * 16 * 16 * (kIsBf16 ? 32 : 64);
}

uint64_t int8_ops(uint64_t n_iterations) {
  alignas(64) static const uint8_t zeros[1024] = {};
  return multiply<false>(zeros, n_iterations);
}

uint64_t bf16_ops(uint64_t n_iterations) {
  // Numbers of all sizes: on zeros the clock rises by a fifth (measured), on data it does not.
  alignas(64) uint16_t values[512];
  uint32_t state = 1;
  for (uint16_t& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<uint16_t>(0x3c00 | (state >> 16 & 0x83ff));
  }
  return multiply<true>(values, n_iterations);
}

}  // namespace

void install_roofs(KernelTable& table) {
  table.roofs.int8_ops = int8_ops;
  table.roofs.int8_name = "tdpbssd";
  table.roofs.bf16_ops = bf16_ops;
}

}  // namespace okibi::cpu::amx
