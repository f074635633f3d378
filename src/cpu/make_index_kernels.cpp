// The index kernels of a level; amx has nothing of its own.
#include "cpu/make_index_kernels.h"

namespace okibi::cpu {

IndexKernels make_index_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::index_kernels();
  if (level >= CpuLevel::kAvx2) return avx2::index_kernels();
  return reference::index_kernels();
}

}  // namespace okibi::cpu
