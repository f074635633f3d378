// Rotary position embedding in its two pairings. Every level computes it with the same two products
// and one sum, so all give the same bits.
#include "cpu/kernels/reference/nonlinear.h"

namespace okibi::cpu::reference {
namespace {

void rotate(float* a, float* b, float cosine, float sine) {
  const float x = *a, y = *b;
  *a = x * cosine - y * sine;
  *b = y * cosine + x * sine;
}

void rope_adjacent(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot,
                   const float* cos_sin) {
  const int32_t half = n_rot / 2;
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; ++i) {
      rotate(x + 2 * i, x + 2 * i + 1, cos_sin[i], cos_sin[half + i]);
    }
  }
}

void rope_half(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot, const float* cos_sin) {
  const int32_t half = n_rot / 2;
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; ++i) {
      rotate(x + i, x + half + i, cos_sin[i], cos_sin[half + i]);
    }
  }
}

}  // namespace

void install_rope(KernelTable& table) {
  table.rope_adjacent = rope_adjacent;
  table.rope_half = rope_half;
}

}  // namespace okibi::cpu::reference
