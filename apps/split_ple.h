// `okibi inspect --split-ple`: a qwen4exp file with its joined n-gram table as one tensor per head,
// for readers whose buffers are smaller than the whole table.
#pragma once

#include <string>

#include "okibi/status.h"

namespace okibi::apps {

// Writes `in` (of a split model, any shard) to the single file `out`. All bytes of tensors and keys
// are copied as they are; only the rows that no head owns are left out. `out` appears when it is
// complete. Shows progress, prints what was written.
Status split_ple(const std::string& in, const std::string& out);

}  // namespace okibi::apps
