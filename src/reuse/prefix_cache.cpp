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

void PrefixCache::keep(const Sha256& space, const Sequence& sequence,
                       std::span<const PlacedView> views) {
  const uint64_t n = sequence.n_tokens();
  if (n == 0 || budget_bytes_ == 0) return;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->sequence.n_tokens() != n || !begins(*it, space, sequence.tokens(), views)) continue;
    entries_.splice(entries_.begin(), entries_, it);
    return;
  }
  const uint64_t n_pages = (n + costs_.page_tokens - 1) / costs_.page_tokens;
  const uint64_t bytes = sizeof(Entry) + n * sizeof(int32_t) + views.size() * sizeof(PlacedView) +
                         n_pages * costs_.page_bytes + costs_.slot_bytes;
  if (bytes > budget_bytes_) {
    ++counters_.not_stored;
    return;
  }
  while (bytes_ + bytes > budget_bytes_) evict();
  entries_.push_front({space, sequence.clone(), {views.begin(), views.end()}, bytes});
  bytes_ += bytes;
}

bool PrefixCache::evict() {
  if (entries_.empty()) return false;
  bytes_ -= entries_.back().bytes;
  entries_.pop_back();
  ++counters_.evictions;
  return true;
}

void PrefixCache::clear() {
  entries_.clear();
  bytes_ = 0;
}

PrefixCounters PrefixCache::counters() const {
  PrefixCounters c = counters_;
  c.entries = entries_.size();
  c.bytes = bytes_;
  return c;
}

}  // namespace okibi::reuse
