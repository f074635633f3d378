// The small kernels of a mixture of experts at this level.
#include "cpu/kernels/shared/experts.h"

#include "cpu/experts_kernels.h"
#include "cpu/kernels/avx512/lanes.h"

namespace okibi::cpu::avx512 {

void install_experts(ExpertsKernels& kernels) {
  kernels.softmax = softmax<Lanes>;
  kernels.weighted_sum = weighted_sum<Lanes>;
}

}  // namespace okibi::cpu::avx512
