// The kernels of recurrent operations at one level: causal convolutions, the delta rule and the
// mixing of n-grams. Plain data, so ISA files may include it. A call works on channels or state
// columns of one sequence, which no other call of the operation touches, over all its rows of the
// step: tokens one after the other, so that a split into steps changes no bit.
#pragma once

#include <cstdint>

namespace okibi::cpu {

// A depthwise convolution: tap j of n_taps multiplies the row `dilation * (n_taps - 1 - j)` before.
// Rows before the first are read from the history, dilation * (n_taps - 1) rows of d values, oldest
// first, which then becomes the last rows before the next step.
struct CausalConvArgs {
  const float* x = nullptr;  // (n_rows, d)
  int64_t x_stride = 0;
  int64_t n_rows = 0, d = 0;
  int64_t channel_begin = 0, channel_end = 0;
  int64_t n_taps = 0, dilation = 1;
  const float* taps = nullptr;  // (n_taps, d): not the order of the contract
  const float* state_in = nullptr;
  float* state_out = nullptr;  // may be state_in
  float* out = nullptr;        // (n_rows, d)
  int64_t out_stride = 0;
};
constexpr int64_t kMaxConvSources = 16;  // taps

// One row and stream of ops::NgramMix.
struct NgramGateArgs {
  float* key = nullptr;  // (d); afterwards nn
  const float* value = nullptr;
  const float* residual = nullptr;
  const float* key_norm = nullptr;
  const float* query_norm = nullptr;
  const float* conv_norm = nullptr;
  int64_t d = 0;
  float eps = 0;
};
// Channels of one stream: out += w * value + silu(the convolution of nn).
struct NgramConvArgs {
  CausalConvArgs conv;           // x is nn, out the streams
  const float* value = nullptr;  // (n_rows, d of one stream), from the stream's first channel
  int64_t value_stride = 0;
  int64_t stream_begin = 0;      // the stream's first channel
  const float* gates = nullptr;  // of the stream, gate_stride apart for each row
  int64_t gate_stride = 0;
};

// What the delta rule makes of a row before its state. Results lie head after head and row after
// row in them, since a unit of work walks the rows of a head.
struct DeltaPrepareArgs {
  const float* qk = nullptr;  // q of all key heads, k of all key heads
  const float* alpha = nullptr;
  const float* beta = nullptr;
  const float* a = nullptr;  // not positive
  const float* dt_bias = nullptr;
  int64_t n_key_heads = 0, n_value_heads = 0, head_dim = 0;
  float* keys = nullptr;  // of key head 0: q' and k' (head_dim each)
  int64_t key_head_stride = 0;
  float* gates = nullptr;  // of value head 0: exp(g) and sigmoid(beta)
  int64_t gate_head_stride = 0;
};

// Columns [column_begin, column_end) of one value head's state over the rows of a sequence. Sums
// over keys run in the order of keys, one rounding per term where the level fuses.
struct DeltaArgs {
  int64_t n_rows = 0, head_dim = 0;
  int64_t column_begin = 0, column_end = 0;
  const float* keys = nullptr;   // (n_rows, 2 head_dim): q', k'
  const float* gates = nullptr;  // (n_rows, 2): exp(g), sigmoid(beta)
  const float* v = nullptr;      // (n_rows, head_dim)
  int64_t v_stride = 0;
  const float* state_in = nullptr;  // (head_dim keys, head_dim values)
  float* state_out = nullptr;       // may be state_in
  float* out = nullptr;             // (n_rows, head_dim)
  int64_t out_stride = 0;
  const float* next_state = nullptr;  // what the thread will read next, or null
};
constexpr int64_t kMaxDeltaHeadDim = 256;
// Columns whose state stays in the first-level cache, for head_dim 128, while rows pass.
constexpr int64_t kDeltaColumns = 64;

struct RecurrentKernels {
  void (*causal_conv)(const CausalConvArgs& args) = nullptr;  // with silu
  float (*ngram_gate)(const NgramGateArgs& args) = nullptr;
  void (*ngram_conv)(const NgramConvArgs& args) = nullptr;
  void (*delta_prepare)(const DeltaPrepareArgs& args) = nullptr;
  void (*delta_rule)(const DeltaArgs& args) = nullptr;
};

namespace reference {
RecurrentKernels recurrent_kernels();
}
namespace avx2 {
RecurrentKernels recurrent_kernels();
}
namespace avx512 {
RecurrentKernels recurrent_kernels();
}

}  // namespace okibi::cpu
