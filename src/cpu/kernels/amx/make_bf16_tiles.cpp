// Activations as bfloat16 tiles (cpu/bf16_tiles.h).
#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
using namespace amx_bf16;
using namespace x16;

void make_tiles(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in, int64_t n_parts,
                int64_t pair_begin, int64_t pair_end, uint8_t* data) {
  const int64_t n_pairs = bf16_pairs(n_rows);
  const int64_t step_bytes = n_parts * 2 * kBf16TileBytes;
  for (int64_t pair = pair_begin; pair < pair_end; ++pair) {
    for (int64_t r = 0; r < kBf16PairRows; ++r) {
      const int64_t row = pair * kBf16PairRows + r;
      const int64_t n = row < n_rows ? n_in : 0;  // rows past the last are zero
      const float* from = x + min64(row, n_rows - 1) * x_stride;
      for (int64_t chunk = 0, k = 0; k < n_in; ++chunk) {
        uint8_t* to = data + bf16_run(n_parts, n_pairs, n_in, chunk, pair).offset + 64 * r;
        const int64_t end = k + kBf16ChunkSteps * kBf16StepValues;
        for (; k < n_in && k < end; k += kBf16StepValues, to += step_bytes) {
          const __m512 low = _mm512_maskz_loadu_ps(mask_at(k, n), from + k);
          const __m512 high = _mm512_maskz_loadu_ps(mask_at(k + 16, n), from + k + 16);
          store(to, to_bf16(low, high));
          if (n_parts == 1) continue;
          store(to + 2 * kBf16TileBytes,
                to_bf16(_mm512_sub_ps(low, rounded(low)), _mm512_sub_ps(high, rounded(high))));
        }
      }
    }
  }
}

}  // namespace

namespace amx {

void install_make_bf16_tiles(KernelTable& table) {
  table.make_bf16_tiles = make_tiles;
}

}  // namespace amx
}  // namespace okibi::cpu
