// Sequences kept for the next request that begins alike: the state of a decision with its pictures,
// prefilled once. An entry is a snapshot (reuse/sequence.h) with what it was made from: scope,
// token ids, and which picture view stands where. A budget in bytes, least recently used first; an
// entry also gives way when a running request needs its pages or its slot.
//
// An entry serves every prompt that it is a beginning of, and nothing else: recurrent state cannot
// be cut. Copying one and running it on gives the bits of a cold run (P1). Entries that begin alike
// share pages, and such a page counts once. Engine thread only.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "reuse/sequence.h"

namespace okibi::reuse {

// Which view's rows stand from a position on.
struct PlacedView {
  uint32_t first = 0, n_rows = 0;
  Sha256 view = {};
  bool operator==(const PlacedView&) const = default;
};

struct PrefixCounters {
  uint64_t hits = 0, misses = 0, evictions = 0, not_stored = 0;
  uint64_t entries = 0, bytes = 0;
};

class PrefixCache {
 public:
  // What a sequence takes: its K/V pages and its slot.
  struct Costs {
    uint64_t page_bytes = 0, slot_bytes = 0;
  };
  PrefixCache(uint64_t budget_bytes, const Costs& costs)
      : budget_bytes_(budget_bytes), costs_(costs) {}

  // A copy of the longest entry that `tokens` (with `views` among them) begin with; none: a miss.
  std::optional<Sequence> find(const Sha256& space, std::span<const int32_t> tokens,
                               std::span<const PlacedView> views);
  // Keeps a copy; `views` are those within the sequence. Says whether it, or an equal one, is kept
  // now: not when it is larger than the budget.
  bool keep(const Sha256& space, const Sequence& sequence, std::span<const PlacedView> views);
  // Makes the entry of exactly these tokens the latest; false when there is none.
  bool refresh(const Sha256& space, std::span<const int32_t> tokens,
               std::span<const PlacedView> views);
  // Drops the least recently used entry; false when there is none.
  bool evict();
  void clear();

  uint64_t budget_bytes() const { return budget_bytes_; }
  PrefixCounters counters() const;

 private:
  struct Entry {
    Sha256 space = {};
    Sequence sequence;
    std::vector<PlacedView> views;
    uint64_t own_bytes = 0;  // without the pages
  };
  uint64_t bytes_beside(const Sequence& sequence) const;
  bool begins(const Entry& entry, const Sha256& space, std::span<const int32_t> tokens,
              std::span<const PlacedView> views) const;

  const uint64_t budget_bytes_;
  const Costs costs_;
  std::list<Entry> entries_;  // latest first
  uint64_t bytes_ = 0;
  std::unordered_map<ops::PageId, uint32_t> page_uses_;  // entries that hold a page
  PrefixCounters counters_;
};

}  // namespace okibi::reuse
