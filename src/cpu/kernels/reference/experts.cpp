// The small kernels of a mixture of experts at this level.
#include "cpu/kernels/shared/experts.h"

#include "cpu/experts_kernels.h"
#include "cpu/kernels/reference/lanes.h"

namespace okibi::cpu::reference {

void install_experts(ExpertsKernels& kernels) {
  kernels.softmax = softmax<Lanes>;
  kernels.weighted_sum = weighted_sum<Lanes>;
}

}  // namespace okibi::cpu::reference
