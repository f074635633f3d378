// Activations as bfloat16 tiles (cpu/bf16_tiles.h).
#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
using namespace amx_bf16;
using namespace x16;

void round_row(const float* x, int64_t n_in, int64_t n_parts, int64_t n_pairs, int64_t row,
               uint8_t* tiles) {
  const int64_t pair = row / kBf16PairRows, step_bytes = n_parts * 2 * kBf16TileBytes;
  const int64_t n = x == nullptr ? 0 : n_in;
  for (int64_t chunk = 0, k = 0; k < n_in; ++chunk) {
    uint8_t* to =
        tiles + bf16_run(n_parts, n_pairs, n_in, chunk, pair).offset + 64 * (row % kBf16PairRows);
    const int64_t end = min64(bf16_chunk_begin(n_in, chunk + 1) * kBf16StepValues, n_in);
    for (; k < end; k += kBf16StepValues, to += step_bytes) {
      const __m512 low = _mm512_maskz_loadu_ps(mask_at(k, n), x + k);
      const __m512 high = _mm512_maskz_loadu_ps(mask_at(k + 16, n), x + k + 16);
      store(to, to_bf16(low, high));
      if (n_parts == 1) continue;
      store(to + 2 * kBf16TileBytes,
            to_bf16(_mm512_sub_ps(low, rounded(low)), _mm512_sub_ps(high, rounded(high))));
    }
  }
}

}  // namespace

namespace amx {

void install_round_row(KernelTable& table) {
  table.round_row = round_row;
}

}  // namespace amx
}  // namespace okibi::cpu
