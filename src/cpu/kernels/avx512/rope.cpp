// Rotary position embedding in its two pairings. Two products and a sum, never fused: the bits are
// those of every other level.
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

// Eight pairs (a, b) side by side become (a c - b s, b c + a s).
void rope_adjacent(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot,
                   const float* cos_sin) {
  const int32_t half = n_rot / 2;
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  constexpr __mmask16 kFirstOfPair = 0x5555;
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; i += 8) {
      const int32_t left = half - i < 8 ? half - i : 8;
      const auto pairs = static_cast<__mmask16>((1u << left) - 1);
      const auto values = static_cast<__mmask16>((1u << (2 * left)) - 1);
      const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pairs, cos_sin + i));
      const __m512 s =
          _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pairs, cos_sin + half + i));
      const __m512 v = _mm512_maskz_loadu_ps(values, x + 2 * i);
      const __m512 along = _mm512_mul_ps(v, c);
      const __m512 across = _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), s);
      const __m512 sum = _mm512_add_ps(along, across);
      _mm512_mask_storeu_ps(x + 2 * i, values,
                            _mm512_mask_sub_ps(sum, kFirstOfPair, along, across));
    }
  }
}

void rope_half(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot, const float* cos_sin) {
  const int32_t half = n_rot / 2;
  for (int32_t h = 0; h < n_heads; ++h, x += head_dim) {
    for (int32_t i = 0; i < half; i += 16) {
      const __mmask16 mask = tail_mask(i, half);
      const __m512 c = _mm512_maskz_loadu_ps(mask, cos_sin + i);
      const __m512 s = _mm512_maskz_loadu_ps(mask, cos_sin + half + i);
      const __m512 a = _mm512_maskz_loadu_ps(mask, x + i);
      const __m512 b = _mm512_maskz_loadu_ps(mask, x + half + i);
      _mm512_mask_storeu_ps(x + i, mask, _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s)));
      _mm512_mask_storeu_ps(x + half + i, mask,
                            _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
    }
  }
}

}  // namespace

void install_rope(KernelTable& table) {
  table.rope_adjacent = rope_adjacent;
  table.rope_half = rope_half;
}

}  // namespace okibi::cpu::avx512
