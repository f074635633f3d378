#include "reuse/answer_cache.h"

namespace okibi::reuse {

uint64_t AnswerCache::bytes_of(const Entry& entry) {
  constexpr uint64_t kBookkeeping = 128;  // list and index nodes
  return sizeof(Entry) + entry.logits.labels.capacity() * sizeof(float) + kBookkeeping;
}

std::optional<KeptLogits> AnswerCache::find(const Sha256& key) {
  std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) {
    ++counters_.misses;
    return std::nullopt;
  }
  ++counters_.hits;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->logits;
}

void AnswerCache::keep(const Sha256& key, const KeptLogits& logits) {
  std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) {  // now perhaps with more known
    bytes_ -= bytes_of(*it->second);
    entries_.erase(it->second);
    index_.erase(it);
  }
  entries_.push_front({key, logits});
  bytes_ += bytes_of(entries_.front());
  index_[key] = entries_.begin();
  while (bytes_ > budget_bytes_ && !entries_.empty()) {
    bytes_ -= bytes_of(entries_.back());
    index_.erase(entries_.back().key);
    entries_.pop_back();
    ++counters_.evictions;
  }
}

void AnswerCache::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  index_.clear();
  bytes_ = 0;
}

AnswerCounters AnswerCache::counters() const {
  std::lock_guard lock(mutex_);
  AnswerCounters c = counters_;
  c.entries = entries_.size();
  c.bytes = bytes_;
  return c;
}

}  // namespace okibi::reuse
