// Exact dequantisation of every weight type, in plain C++: the definition that kernels, tools and
// tests are measured against. Source of the formulas: spec of the GGUF block layouts.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace okibi {

// One row of `n` values (a multiple of the type's block size) from `src` (no alignment needed) into
// `dst`. Every weight type and the activation formats Q8_1, Q8_K; other types are a bug.
void dequantize_row(DType type, const uint8_t* src, int64_t n, float* dst);

}  // namespace okibi
