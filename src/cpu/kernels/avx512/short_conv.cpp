// The gated short convolution, token by token over some channels. u of the last n_taps tokens
// stands in a ring, so rows are read once, in order; the state is read before it is written.
#include "cpu/kernels/avx512/nonlinear.h"
#include "cpu/kernels/avx512/vector_math.h"

namespace okibi::cpu::avx512 {
namespace {

// Channels at a time: ring and taps of a typical kernel (3 or 4 taps) fit the first-level cache.
constexpr int32_t kChannels = 256;

void convolve_channels(const ShortConvArgs& a, int32_t begin, int32_t n) {
  alignas(64) float ring[kMaxConvTaps][kChannels];
  alignas(64) float taps[kMaxConvTaps][kChannels];
  const int32_t n_taps = a.n_taps;
  for (int32_t j = 0; j < n_taps; ++j) {
    for (int32_t c = 0; c < n; ++c) {
      taps[j][c] = a.kernel[static_cast<int64_t>(begin + c) * n_taps + j];
    }
  }
  for (int32_t j = 0; j + 1 < n_taps; ++j) {  // column j of the state is u of token j - n_taps + 1
    const float* column = a.state_in + static_cast<int64_t>(j) * a.d + begin;
    for (int32_t c = 0; c < n; ++c) ring[(j + 1) % n_taps][c] = column[c];
  }
  int32_t newest = 0;
  for (int32_t t = 0; t < a.n_rows; ++t) {
    const float* row = a.bcx + t * a.bcx_stride + begin;
    float* out = a.out + t * a.out_stride + begin;
    const int32_t oldest = newest + 1 == n_taps ? 0 : newest + 1;
    for (int32_t c = 0; c < n; c += 16) {
      const __mmask16 mask = tail_mask(c, n);
      const __m512 u = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, row + c),
                                     _mm512_maskz_loadu_ps(mask, row + 2 * a.d + c));
      _mm512_mask_store_ps(ring[newest] + c, mask, u);
      int32_t at = oldest;
      __m512 sum = _mm512_mul_ps(_mm512_maskz_load_ps(mask, taps[0] + c),
                                 _mm512_maskz_load_ps(mask, ring[at] + c));
      for (int32_t j = 1; j < n_taps; ++j) {
        at = at + 1 == n_taps ? 0 : at + 1;
        sum = _mm512_fmadd_ps(_mm512_maskz_load_ps(mask, taps[j] + c),
                              _mm512_maskz_load_ps(mask, ring[at] + c), sum);
      }
      _mm512_mask_storeu_ps(out + c, mask,
                            _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, row + a.d + c), sum));
    }
    newest = oldest;
  }
  for (int32_t j = 0; j + 1 < n_taps; ++j) {  // `newest` is where the next token would go
    float* column = a.state_out + static_cast<int64_t>(j) * a.d + begin;
    const float* u = ring[(newest + 1 + j) % n_taps];
    for (int32_t c = 0; c < n; ++c) column[c] = u[c];
  }
}

void short_conv(const ShortConvArgs& a) {
  for (int32_t c = a.channel_begin; c < a.channel_end; c += kChannels) {
    convolve_channels(a, c, a.channel_end - c < kChannels ? a.channel_end - c : kChannels);
  }
}

}  // namespace

void install_short_conv(KernelTable& table) {
  table.short_conv = short_conv;
}

}  // namespace okibi::cpu::avx512
