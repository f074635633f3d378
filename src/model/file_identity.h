// What a GGUF file is, as a hash: the part of a cache key that says which weights computed a value.
#pragma once

#include "base/hash.h"
#include "gguf/reader.h"

namespace okibi::model {

// Over keys, values, tensor names, types and shapes; with_data: over every weight too, which reads
// the whole file.
Sha256 file_identity(const gguf::File& file, bool with_data);

}  // namespace okibi::model
