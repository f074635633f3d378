#include "cpu/weight_arena.h"

#include <algorithm>

#include "base/checked_math.h"

namespace okibi::cpu {
namespace {

// Address space only: what is never written takes no memory.
constexpr uint64_t kBlockBytes = uint64_t{64} << 20;
constexpr uint64_t kReadPast = 4096;

}  // namespace

Result<uint8_t*> WeightArena::take(uint64_t n_bytes) {
  const uint64_t wanted = align_up(n_bytes, 64);
  if (blocks_.empty() || used_ + wanted + kReadPast > blocks_.back().size()) {
    OKIBI_ASSIGN_OR_RETURN(
        MappedBuffer block,
        MappedBuffer::allocate(std::max(kBlockBytes, wanted + kReadPast), /*huge=*/true));
    blocks_.push_back(std::move(block));
    used_ = 0;
  }
  uint8_t* p = blocks_.back().data() + used_;
  used_ += wanted;
  return p;
}

}  // namespace okibi::cpu
