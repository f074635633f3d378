// The small kernels of a mixture of experts, by level. The products are those of kernel_table.h.
#pragma once

#include <cstdint>

namespace okibi {
// platform/cpu_features.h, which kernel files must not include.
enum class CpuLevel : uint8_t;
}  // namespace okibi

namespace okibi::cpu {

struct ExpertsKernels {
  // p = softmax(x), n values. The maximum is exact; the sum of the exponentials runs in 16 lanes
  // (lane = index mod 16) that are added as a tree of neighbours. p may be x.
  void (*softmax)(const float* x, int64_t n, float* p) = nullptr;
  // out = weights[0] * rows[0] + weights[1] * rows[1] + ..., terms added in this order.
  void (*weighted_sum)(const float* const* rows, const float* weights, int32_t n_rows, int64_t n,
                       float* out) = nullptr;
};

ExpertsKernels make_experts_kernels(CpuLevel level);

namespace reference {
void install_experts(ExpertsKernels& kernels);
}
namespace avx2 {
void install_experts(ExpertsKernels& kernels);
}
namespace avx512 {
void install_experts(ExpertsKernels& kernels);
}

}  // namespace okibi::cpu
