// How a step's experts are cut into waves, and the memory that this takes. Shared by the backends
// and by whoever counts bytes.
#pragma once

#include <cstdint>

#include "ops/long_context.h"

namespace okibi::ops {

// A row of the step meets n_used experts: that many pairs. They are computed expert after expert,
// in waves of whole experts of at most this many pairs, so that between the products of a wave only
// its own rows are kept, and in the caches.
int64_t experts_wave_pairs(const ExpertsConfig& config);

// Bytes that set_experts and the largest step take: a result for each pair of the step; for those
// of a wave gate and up, and the inputs gathered in the order of the experts, in rows and in tiles
// of 32 rows of 10 bytes for 8 values.
uint64_t experts_bytes(const ExpertsConfig& config);

}  // namespace okibi::ops
