#include "reuse/page_pool.h"

#include "base/check.h"

namespace okibi::reuse {

PagePool::PagePool(ops::Backend* backend, uint32_t n_pages, int32_t page_tokens)
    : backend_(backend), page_tokens_(page_tokens), counts_(n_pages, 0) {
  free_.reserve(n_pages);
  for (uint32_t i = n_pages; i > 0; --i) free_.push_back(i - 1);
}

ops::PageId PagePool::take() {
  CHECK(!free_.empty());
  const ops::PageId page = free_.back();
  free_.pop_back();
  counts_[page] = 1;
  return page;
}

void PagePool::hold(ops::PageId page) {
  DCHECK(counts_[page] > 0);
  ++counts_[page];
}

void PagePool::release(ops::PageId page) {
  CHECK(counts_[page] > 0, "page %u released once too often", page);
  if (--counts_[page] > 0) return;
  if (backend_ != nullptr) backend_->discard_page(page);
  free_.push_back(page);
}

void PagePool::copy(ops::PageId src, ops::PageId dst, int32_t n_tokens) {
  if (backend_ != nullptr) backend_->copy_page(src, dst, n_tokens);
}

}  // namespace okibi::reuse
