// Activations as bfloat16 tiles (cpu/bf16_tiles.h).
#include "cpu/bf16_tiles.h"
#include "cpu/kernels/amx/bf16.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
using namespace amx_bf16;
using namespace x16;

inline __m512 load_tail(const float* x, int64_t n) {
  if (n >= 16) return _mm512_loadu_ps(x);
  return n <= 0 ? _mm512_setzero_ps()
                : _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), x);
}

void make_tiles(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in, int64_t n_parts,
                int64_t pair_begin, int64_t pair_end, uint8_t* data) {
  const int64_t n_pairs = bf16_pairs(n_rows), n_steps = bf16_steps(n_in);
  const int64_t step_bytes = n_parts * 2 * kBf16TileBytes;
  for (int64_t pair = pair_begin; pair < pair_end; ++pair) {
    for (int64_t r = 0; r < kBf16PairRows; ++r) {
      const int64_t row = pair * kBf16PairRows + r;
      for (int64_t step = 0; step < n_steps; ++step) {
        const int64_t chunk = step / kBf16ChunkSteps, k = step * kBf16StepValues;
        uint8_t* to = data + bf16_run(n_parts, n_pairs, n_in, chunk, pair).offset +
                      step % kBf16ChunkSteps * step_bytes + 64 * r;
        __m512 low = _mm512_setzero_ps(), high = low;
        if (row < n_rows) {
          low = load_tail(x + row * x_stride + k, n_in - k);
          high = load_tail(x + row * x_stride + k + 16, n_in - k - 16);
        }
        store(to, to_bf16(low, high));
        if (n_parts == 1) continue;
        store(to + 2 * kBf16TileBytes,
              to_bf16(_mm512_sub_ps(low, rounded(low)), _mm512_sub_ps(high, rounded(high))));
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
