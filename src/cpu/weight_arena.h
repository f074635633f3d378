// Memory for packed weights: many matrices one behind the other in a few large mappings. A mapping
// of its own for each would keep most of them off huge pages (measured: 76 of 209 MiB on them), and
// a pass over the weights would pay for it in page walks.
#pragma once

#include <vector>

#include "okibi/status.h"
#include "platform/file_map.h"

namespace okibi::cpu {

class WeightArena {
 public:
  // n_bytes of zeroed memory on a cache line, for as long as the arena lives. The next 4 KiB may be
  // read, not used.
  Result<uint8_t*> take(uint64_t n_bytes);

 private:
  std::vector<MappedBuffer> blocks_;
  uint64_t used_ = 0;  // of the last block
};

}  // namespace okibi::cpu
