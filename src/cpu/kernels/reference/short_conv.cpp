// The gated short convolution, token by token: u = B * X; out = C * sum over taps of kernel * u.
// The state is read whole before any of it is written, so it may be updated in place.
#include "cpu/kernels/reference/nonlinear.h"

namespace okibi::cpu::reference {
namespace {

void convolve_channel(const ShortConvArgs& a, int32_t c) {
  const int32_t n_past = a.n_taps - 1;
  float window[kMaxConvTaps];  // u of the last n_taps tokens, oldest first
  for (int32_t j = 0; j < n_past; ++j) window[j] = a.state_in[static_cast<int64_t>(j) * a.d + c];
  const float* kernel = a.kernel + static_cast<int64_t>(c) * a.n_taps;
  for (int32_t t = 0; t < a.n_rows; ++t) {
    const float* row = a.bcx + t * a.bcx_stride;
    window[n_past] = row[c] * row[2 * a.d + c];
    float sum = kernel[0] * window[0];
    for (int32_t j = 1; j < a.n_taps; ++j) sum += kernel[j] * window[j];
    a.out[t * a.out_stride + c] = row[a.d + c] * sum;
    for (int32_t j = 0; j < n_past; ++j) window[j] = window[j + 1];
  }
  for (int32_t j = 0; j < n_past; ++j) a.state_out[static_cast<int64_t>(j) * a.d + c] = window[j];
}

void short_conv(const ShortConvArgs& a) {
  for (int32_t c = a.channel_begin; c < a.channel_end; ++c) convolve_channel(a, c);
}

}  // namespace

void install_short_conv(KernelTable& table) {
  table.short_conv = short_conv;
}

}  // namespace okibi::cpu::reference
