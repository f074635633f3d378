// Rotary position embedding in its two pairings. Two products and a sum, never fused: the bits are
// those of every other level.
#include "cpu/kernels/avx2/nonlinear.h"
#include "cpu/kernels/avx2/vector_math.h"

namespace okibi::cpu::avx2 {
namespace {

// Four pairs (a, b) side by side become (a c - b s, b c + a s).
void rope_adjacent(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot,
                   const float* cos_sin) {
  const int32_t half = n_rot / 2;
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; i += 4) {
      const __m256i pairs = tail_mask(i, half < i + 4 ? half : i + 4);
      const __m256i values = tail_mask(2 * i, n_rot);
      const __m256 c = _mm256_permutevar8x32_ps(load_tail(cos_sin + i, pairs), twice);
      const __m256 s = _mm256_permutevar8x32_ps(load_tail(cos_sin + half + i, pairs), twice);
      const __m256 v = load_tail(x + 2 * i, values);
      const __m256 across = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), s);
      store_tail(x + 2 * i, values, _mm256_addsub_ps(_mm256_mul_ps(v, c), across));
    }
  }
}

void rope_half(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot, const float* cos_sin) {
  const int32_t half = n_rot / 2;
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; i += 8) {
      const __m256i mask = tail_mask(i, half);
      const __m256 c = load_tail(cos_sin + i, mask), s = load_tail(cos_sin + half + i, mask);
      const __m256 a = load_tail(x + i, mask), b = load_tail(x + half + i, mask);
      store_tail(x + i, mask, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
      store_tail(x + half + i, mask, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
    }
  }
}

}  // namespace

void install_rope(KernelTable& table) {
  table.rope_adjacent = rope_adjacent;
  table.rope_half = rope_half;
}

}  // namespace okibi::cpu::avx2
