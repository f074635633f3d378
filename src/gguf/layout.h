// Where the tensors of one file lie: inside it, aligned, not overlapping.
#pragma once

#include <cstdint>

#include "gguf/parse.h"
#include "okibi/status.h"

namespace okibi::gguf {

// `infos_end` is the byte after the last tensor info. Turns the tensors' offsets from "in the data
// section" to "in the file". Gaps between tensors and a file-type label that no tensor bears out
// are warnings.
Status place_tensors(uint64_t infos_end, uint64_t file_bytes, ParsedFile* file);

}  // namespace okibi::gguf
