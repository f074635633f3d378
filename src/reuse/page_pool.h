// Counts who holds which K/V page. A page has page_tokens positions of all attention layers; the
// bytes are the backend's. A page held once may be written by its holder; a page held more often is
// frozen. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace okibi::reuse {

class PagePool {
 public:
  // `backend` (may be null in tests) is told of pages whose content is no longer needed.
  PagePool(ops::Backend* backend, uint32_t n_pages, int32_t page_tokens);

  int32_t page_tokens() const { return page_tokens_; }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t n_pages() const { return static_cast<uint32_t>(counts_.size()); }

  // A page held once; call only when n_free() > 0.
  ops::PageId take();
  void hold(ops::PageId page);
  void release(ops::PageId page);
  bool is_shared(ops::PageId page) const { return counts_[page] > 1; }
  void copy(ops::PageId src, ops::PageId dst, int32_t n_tokens);

 private:
  ops::Backend* backend_;
  int32_t page_tokens_;
  std::vector<uint32_t> counts_;
  std::vector<ops::PageId> free_;  // last one first: recently freed pages are warm
};

}  // namespace okibi::reuse
