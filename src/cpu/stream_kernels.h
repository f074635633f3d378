// The kernels of residual streams and gates at one level. Plain data, so ISA files may include it.
// Every function works on one row or on a part of one, columns are independent except in norms,
// whose sums run in 16 lanes (lane = index mod 16) that are added as a tree of neighbours.
#pragma once

#include <cstdint>

namespace okibi::cpu {

constexpr int32_t kMaxStreams = 16;

struct StreamKernels {
  // n_groups times: d values are normed on their own. out may be x.
  void (*norm_groups)(const float* x, const float* gamma, int64_t n_groups, int64_t d, float eps,
                      float* out) = nullptr;
  // x = silu(x * scale)
  void (*silu)(float* x, int64_t n, float scale) = nullptr;
  // Columns [begin, end) of out (d) = mean over streams of sigmoid(mix) * normed, both
  // (n_streams, d); streams are added in order.
  void (*mix)(const float* normed, const float* mix, int64_t n_streams, int64_t d, int64_t begin,
              int64_t end, float* out) = nullptr;
  // Columns [begin, end) of every stream of inout (n_streams, d) gain 2 sigmoid(strength_c /
  // n_streams) y. At most kMaxStreams.
  void (*inject)(const float* y, const float* strength, int64_t n_streams, int64_t d, int64_t begin,
                 int64_t end, float* inout) = nullptr;
  // inout *= sigmoid(gate)
  void (*sigmoid_mul)(const float* gate, int64_t n, float* inout) = nullptr;
  // One head of n values: inout = norm(inout) * gamma * silu or sigmoid of gate.
  void (*gated_norm)(const float* gate, bool is_silu, const float* gamma, int64_t n, float eps,
                     float* inout) = nullptr;
  // inout += sigmoid(gate) * in
  void (*add_gated)(const float* in, float gate, int64_t n, float* inout) = nullptr;
};

namespace reference {
StreamKernels stream_kernels();
}
namespace avx2 {
StreamKernels stream_kernels();
}
namespace avx512 {
StreamKernels stream_kernels();
}

}  // namespace okibi::cpu
