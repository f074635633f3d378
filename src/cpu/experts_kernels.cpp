#include "cpu/experts_kernels.h"

#include "platform/cpu_features.h"

namespace okibi::cpu {

ExpertsKernels make_experts_kernels(CpuLevel level) {
  ExpertsKernels kernels;
  reference::install_experts(kernels);
  if (level >= CpuLevel::kAvx2) avx2::install_experts(kernels);
  if (level >= CpuLevel::kAvx512) avx512::install_experts(kernels);
  return kernels;
}

}  // namespace okibi::cpu
