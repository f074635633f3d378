#include "reuse/slot_pool.h"

#include "base/check.h"

namespace okibi::reuse {

SlotPool::SlotPool(uint32_t n_slots) : counts_(n_slots, 0) {
  CHECK(n_slots >= 2, "n_slots=%u", n_slots);
  for (uint32_t i = n_slots; i > 1; --i) free_.push_back(i - 1);
}

ops::SlotId SlotPool::take() {
  CHECK(!free_.empty());
  const ops::SlotId slot = free_.back();
  free_.pop_back();
  counts_[slot] = 1;
  return slot;
}

void SlotPool::hold(ops::SlotId slot) {
  if (slot == kEmptySlot) return;
  DCHECK(counts_[slot] > 0);
  ++counts_[slot];
}

void SlotPool::release(ops::SlotId slot) {
  if (slot == kEmptySlot) return;
  CHECK(counts_[slot] > 0, "slot %u released once too often", slot);
  if (--counts_[slot] == 0) free_.push_back(slot);
}

}  // namespace okibi::reuse
