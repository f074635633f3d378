#include "reuse/sequence.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace okibi::reuse {

Sequence::Sequence(Sequence&& other) noexcept
    : pools_(other.pools_),
      tokens_(std::move(other.tokens_)),
      pages_(std::move(other.pages_)),
      slot_(std::exchange(other.slot_, SlotPool::kEmptySlot)),
      next_slot_(std::exchange(other.next_slot_, SlotPool::kEmptySlot)) {
  other.tokens_.clear();
  other.pages_.clear();
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pools_ = other.pools_;
  tokens_ = std::exchange(other.tokens_, {});
  pages_ = std::exchange(other.pages_, {});
  slot_ = std::exchange(other.slot_, SlotPool::kEmptySlot);
  next_slot_ = std::exchange(other.next_slot_, SlotPool::kEmptySlot);
  return *this;
}

Sequence Sequence::clone() const {
  Sequence copy(pools_);
  copy.tokens_ = tokens_;
  copy.pages_ = pages_;
  copy.slot_ = slot_;
  copy.next_slot_ = slot_;
  for (ops::PageId page : pages_) pools_.pages->hold(page);
  if (pools_.has_state) pools_.slots->hold(slot_);
  // A page prepared for a step that did not happen holds nothing yet.
  copy.drop_pages_after(n_tokens());
  return copy;
}

Status Sequence::prepare(uint32_t n_more) {
  const uint32_t n = n_tokens();
  uint32_t n_new_pages = 0;
  bool copy_open_page = false;
  if (pools_.has_kv) {
    const uint32_t page_tokens = static_cast<uint32_t>(pools_.pages->page_tokens());
    const uint32_t n_pages_needed = (n + n_more + page_tokens - 1) / page_tokens;
    const uint32_t n_have = static_cast<uint32_t>(pages_.size());
    n_new_pages = n_pages_needed > n_have ? n_pages_needed - n_have : 0;
    // The open page is the one position n lies in, if it already exists.
    copy_open_page = n / page_tokens < n_have && pools_.pages->is_shared(pages_[n / page_tokens]);
    const uint32_t n_take = n_new_pages + (copy_open_page ? 1 : 0);
    if (pools_.pages->n_free() < n_take) {
      return resource_exhausted(fmt::format(
          "the K/V cache is full: {} more tokens need {} pages of {} tokens, {} of {} "
          "are free",
          n_more, n_take, page_tokens, pools_.pages->n_free(), pools_.pages->n_pages()));
    }
  }
  const bool needs_slot = pools_.has_state && pools_.slots->is_shared(slot_) && next_slot_ == slot_;
  if (needs_slot && pools_.slots->n_free() == 0) {
    return resource_exhausted(
        "no slot for recurrent state is free: too many sessions, forks and "
        "snapshots are alive");
  }

  if (copy_open_page) {
    const uint32_t page_tokens = static_cast<uint32_t>(pools_.pages->page_tokens());
    ops::PageId& open = pages_[n / page_tokens];
    const ops::PageId own = pools_.pages->take();
    pools_.pages->copy(open, own, static_cast<int32_t>(n % page_tokens));
    pools_.pages->release(open);
    open = own;
  }
  for (uint32_t i = 0; i < n_new_pages; ++i) pages_.push_back(pools_.pages->take());
  if (needs_slot) next_slot_ = pools_.slots->take();
  return ok_status();
}

ops::SequenceSpan Sequence::span(uint32_t first_row, uint32_t n_rows) const {
  return {.first_row = first_row,
          .n_rows = n_rows,
          .n_past = n_tokens(),
          .src_slot = slot_,
          .dst_slot = next_slot_,
          .pages = pages_,
          .past_tokens = tokens_};
}

void Sequence::commit(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (next_slot_ != slot_) {
    pools_.slots->release(slot_);
    slot_ = next_slot_;
  }
}

void Sequence::cut(uint32_t n_tokens) {
  CHECK(n_tokens <= tokens_.size() && (n_tokens == 0 || !pools_.has_state));
  if (n_tokens == 0) return clear();
  tokens_.resize(n_tokens);
  drop_pages_after(n_tokens);
}

void Sequence::clear() {
  tokens_.clear();
  drop_pages_after(0);
  if (pools_.has_state) {
    if (next_slot_ != slot_) pools_.slots->release(next_slot_);
    pools_.slots->release(slot_);
  }
  slot_ = next_slot_ = SlotPool::kEmptySlot;
}

void Sequence::drop_pages_after(uint32_t n_tokens) {
  if (!pools_.has_kv) return;
  const uint32_t page_tokens = static_cast<uint32_t>(pools_.pages->page_tokens());
  const size_t n_keep = (n_tokens + page_tokens - 1) / page_tokens;
  while (pages_.size() > n_keep) {
    pools_.pages->release(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace okibi::reuse
