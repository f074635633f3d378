#include "reuse/prefix_cache.h"

#include <algorithm>

namespace okibi::reuse {

bool PrefixCache::begins(const Entry& entry, const Sha256& space, std::span<const int32_t> tokens,
                         std::span<const PlacedView> views) const {
  const std::vector<int32_t>& mine = entry.sequence.tokens();
  if (entry.space != space || mine.size() > tokens.size()) return false;
  if (!std::equal(mine.begin(), mine.end(), tokens.begin())) return false;
  // The views that begin inside the entry must be exactly the entry's.
  size_t n = 0;
  while (n < views.size() && views[n].first < mine.size()) ++n;
  return std::equal(entry.views.begin(), entry.views.end(), views.begin(),
                    views.begin() + static_cast<ptrdiff_t>(n));
}

std::optional<Sequence> PrefixCache::find(const Sha256& space, std::span<const int32_t> tokens,
                                          std::span<const PlacedView> views) {
  auto best = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!begins(*it, space, tokens, views)) continue;
    if (best == entries_.end() || it->sequence.n_tokens() > best->sequence.n_tokens()) best = it;
  }
  if (best == entries_.end()) {
    ++counters_.misses;
    return std::nullopt;
  }
  ++counters_.hits;
  entries_.splice(entries_.begin(), entries_, best);
  return best->sequence.clone();
}

bool PrefixCache::refresh(const Sha256& space, std::span<const int32_t> tokens,
                          std::span<const PlacedView> views) {
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->sequence.n_tokens() != tokens.size() || !begins(*it, space, tokens, views)) continue;
    entries_.splice(entries_.begin(), entries_, it);
    return true;
  }
  return false;
}

// Of the sequence's pages that no entry holds.
uint64_t PrefixCache::bytes_beside(const Sequence& sequence) const {
  uint64_t n = 0;
  for (ops::PageId page : sequence.pages()) n += !page_uses_.contains(page);
  return n * costs_.page_bytes;
}

bool PrefixCache::keep(const Sha256& space, const Sequence& sequence,
                       std::span<const PlacedView> views) {
  const uint64_t n = sequence.n_tokens();
  if (n == 0 || budget_bytes_ == 0) return false;
  if (refresh(space, sequence.tokens(), views)) return true;
  Sequence copy = sequence.clone();
  const size_t n_pages = copy.pages().size();
  const uint64_t own_bytes = sizeof(Entry) + n * sizeof(int32_t) +
                             views.size() * sizeof(PlacedView) + n_pages * sizeof(ops::PageId) +
                             costs_.slot_bytes;
  if (own_bytes + n_pages * costs_.page_bytes > budget_bytes_) {
    ++counters_.not_stored;
    return false;
  }
  // What goes may have shared pages with the new one, so the sum is taken anew each time.
  while (bytes_ + own_bytes + bytes_beside(copy) > budget_bytes_) evict();
  bytes_ += own_bytes + bytes_beside(copy);
  for (ops::PageId page : copy.pages()) ++page_uses_[page];
  entries_.push_front({space, std::move(copy), {views.begin(), views.end()}, own_bytes});
  return true;
}

bool PrefixCache::evict() {
  if (entries_.empty()) return false;
  const Entry& oldest = entries_.back();
  bytes_ -= oldest.own_bytes;
  for (ops::PageId page : oldest.sequence.pages()) {
    const auto uses = page_uses_.find(page);
    if (--uses->second > 0) continue;
    page_uses_.erase(uses);
    bytes_ -= costs_.page_bytes;
  }
  entries_.pop_back();
  ++counters_.evictions;
  return true;
}

void PrefixCache::clear() {
  entries_.clear();
  page_uses_.clear();
  bytes_ = 0;
}

PrefixCounters PrefixCache::counters() const {
  PrefixCounters c = counters_;
  c.entries = entries_.size();
  c.bytes = bytes_;
  return c;
}

}  // namespace okibi::reuse
