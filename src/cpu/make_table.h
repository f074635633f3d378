// The kernel table of a level: every level below it first, then its own improvements on top.
#pragma once

#include "cpu/kernel_table.h"
#include "platform/cpu_features.h"

namespace okibi::cpu {

// `level` is one that the host runs (choose_level); kernels of a higher one would fault.
KernelTable make_table(CpuLevel level);

}  // namespace okibi::cpu
