// Measures the limits of this host at one level: arithmetic and memory reading, all threads at
// once.
#pragma once

#include <cstdint>

#include "ops/roofs.h"
#include "platform/cpu_features.h"

namespace okibi::cpu {

// Best of five for each roof; takes about a second.
ops::Roofs measure_roofs(CpuLevel level, int n_threads, uint64_t buffer_bytes);

}  // namespace okibi::cpu
