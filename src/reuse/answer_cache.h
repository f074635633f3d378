// Label logits kept for an identical question on an identical prompt. The key is a digest of all
// they depend on: scope, numeric identity, token ids, picture views, label ids. A budget in bytes
// with keys and bookkeeping, least recently used first; 0 keeps nothing. Any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace okibi::reuse {

struct KeptLogits {
  std::vector<float> labels;
  double outside_mass = -1;  // below 0: not known
};

struct AnswerCounters {
  uint64_t hits = 0, misses = 0, evictions = 0, entries = 0, bytes = 0;
};

class AnswerCache {
 public:
  explicit AnswerCache(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  std::optional<KeptLogits> find(const Sha256& key);
  void keep(const Sha256& key, const KeptLogits& logits);
  void clear();
  uint64_t budget_bytes() const { return budget_bytes_; }
  AnswerCounters counters() const;

 private:
  struct Entry {
    Sha256 key = {};
    KeptLogits logits;
  };
  struct KeyHash {
    size_t operator()(const Sha256& key) const {
      size_t h = 0;
      std::memcpy(&h, key.data(), sizeof h);
      return h;
    }
  };
  static uint64_t bytes_of(const Entry& entry);

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;  // guards everything below
  std::list<Entry> entries_;  // latest first
  std::unordered_map<Sha256, std::list<Entry>::iterator, KeyHash> index_;
  uint64_t bytes_ = 0;
  AnswerCounters counters_;
};

}  // namespace okibi::reuse
