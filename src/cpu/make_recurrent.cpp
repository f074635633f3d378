#include "cpu/make_recurrent.h"

namespace okibi::cpu {

StreamKernels make_stream_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::stream_kernels();
  return level >= CpuLevel::kAvx2 ? avx2::stream_kernels() : reference::stream_kernels();
}

RecurrentKernels make_recurrent_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::recurrent_kernels();
  return level >= CpuLevel::kAvx2 ? avx2::recurrent_kernels() : reference::recurrent_kernels();
}

}  // namespace okibi::cpu
