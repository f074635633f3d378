// The kernels of streams and recurrences for a level. The amx level uses those of avx512.
#pragma once

#include "cpu/recurrent_kernels.h"
#include "cpu/stream_kernels.h"
#include "platform/cpu_features.h"

namespace okibi::cpu {

// `level` is one that the host runs (choose_level); kernels of a higher one would fault.
StreamKernels make_stream_kernels(CpuLevel level);
RecurrentKernels make_recurrent_kernels(CpuLevel level);

}  // namespace okibi::cpu
