// The reference quantisers: float rows to blocks, as the file format's own tools make them.
#pragma once

#include <cstdint>

#include "okibi/status.h"
#include "tensor/dtype.h"

namespace okibi {

// True for the targets that quantize_row writes: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,
// Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, and the activation formats Q8_1 and Q8_K.
bool can_quantize_to(DType type);

// One row of `n` values (a multiple of the block size) into row_bytes(type, n) bytes. Fails, naming
// the value, where a scale or a value does not fit the format (Q4_1, Q5_1: a minimum beyond 65504)
// or, for blocks, an input is not finite; the caller then keeps the tensor in another type.
// F32, F16 and BF16 carry NaN and infinities over.
Status quantize_row(DType type, const float* src, int64_t n, uint8_t* dst);

}  // namespace okibi
