// The optional look at the tensors' contents: a file can be sound in structure and still hold
// numbers that no calculation survives. Reads every byte of the tensor.
#pragma once

#include "gguf/reader.h"
#include "okibi/status.h"

namespace okibi::gguf {

// Fails, naming tensor and place, on an infinity or NaN among float values or f16 scales, and on an
// E8M0 scale of 0xff. Integer types pass.
Status check_tensor_data(const File& file, const TensorInfo& info);

}  // namespace okibi::gguf
