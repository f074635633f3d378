// The index kernels of a level.
#pragma once

#include "cpu/index_kernels.h"
#include "platform/cpu_features.h"

namespace okibi::cpu {

// `level` is one that the host runs.
IndexKernels make_index_kernels(CpuLevel level);

}  // namespace okibi::cpu
