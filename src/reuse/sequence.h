// One sequence of tokens and what the model keeps of it: its K/V pages and its slot of recurrent
// state. Copying is cheap (`clone` holds the same pages and slot); whoever appends first takes
// pages and slots of his own where they are shared, so nobody ever sees another's writes. A clone
// that is never appended to is a snapshot. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "okibi/status.h"
#include "ops/batch_plan.h"
#include "reuse/page_pool.h"
#include "reuse/slot_pool.h"

namespace okibi::reuse {

struct Pools {
  PagePool* pages = nullptr;
  SlotPool* slots = nullptr;
  bool has_state = false;  // the model is recurrent
  bool has_kv = true;
};

class Sequence {
 public:
  explicit Sequence(Pools pools) : pools_(pools) {}
  ~Sequence() { clear(); }
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence clone() const;

  const std::vector<int32_t>& tokens() const { return tokens_; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens_.size()); }
  const std::vector<ops::PageId>& pages() const { return pages_; }

  // Appending happens in two phases. `prepare` takes whatever pages and slot n more tokens need; it
  // fails, changing nothing, when there are not enough. Then `span` describes the step, and after
  // the step `commit` records the tokens.
  Status prepare(uint32_t n_more);
  ops::SequenceSpan span(uint32_t first_row, uint32_t n_rows) const;
  void commit(std::span<const int32_t> tokens);

  // Forgets the tokens from n_tokens on. Only without recurrent state, or for n_tokens == 0:
  // recurrent state cannot be cut.
  void cut(uint32_t n_tokens);
  void clear();

 private:
  void drop_pages_after(uint32_t n_tokens);

  Pools pools_;
  std::vector<int32_t> tokens_;
  std::vector<ops::PageId> pages_;
  ops::SlotId slot_ = SlotPool::kEmptySlot;       // state after tokens_
  ops::SlotId next_slot_ = SlotPool::kEmptySlot;  // where the prepared step writes
};

}  // namespace okibi::reuse
