// Counts who holds which slot of recurrent state. As with pages: held once = its holder may write,
// held more often = frozen. Slot 0 is the state of an empty sequence, all zero, and never written.
// Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace okibi::reuse {

class SlotPool {
 public:
  static constexpr ops::SlotId kEmptySlot = 0;

  explicit SlotPool(uint32_t n_slots);  // counting slot 0

  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  // A slot held once, with whatever it held before; call only when n_free() > 0.
  ops::SlotId take();
  void hold(ops::SlotId slot);
  void release(ops::SlotId slot);
  // The empty slot counts as shared, so that nobody writes it.
  bool is_shared(ops::SlotId slot) const { return slot == kEmptySlot || counts_[slot] > 1; }

 private:
  std::vector<uint32_t> counts_;
  std::vector<ops::SlotId> free_;
};

}  // namespace okibi::reuse
