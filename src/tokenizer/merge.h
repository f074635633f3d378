// The merge loop that byte-level BPE and SentencePiece share: of all adjacent pairs of symbols that
// have a rank, join the one with the lowest rank, the leftmost on a tie, until none is left.
// Symbols are numbers; what they stand for is the caller's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace okibi::tokenizer {

constexpr uint32_t kNoRank = 0xFFFFFFFF;

struct Merge {
  uint32_t rank = kNoRank;
  uint32_t result = 0;
};

// Pairs of symbols -> rank and result, in one open-addressing table.
class MergeTable {
 public:
  void reserve(size_t n_merges);
  // False, and nothing changes, if the pair has a rank already. At most the reserved number.
  bool insert(uint32_t left, uint32_t right, Merge merge);
  size_t size() const { return size_; }

  Merge find(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    const uint64_t hash = hash_of(key);
    const uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return {};
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.merge;
      if (slot.key == kFree) return {};
    }
  }

  // Starts fetching what find() will read.
  void prefetch(uint32_t left, uint32_t right) const {
    const uint64_t hash = hash_of(key_of(left, right));
    __builtin_prefetch(&filter_[hash >> filter_shift_ >> 6]);
    __builtin_prefetch(&slots_[hash & mask_]);
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }
  static uint64_t hash_of(uint64_t key) {
    const uint64_t h = key * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 32);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1);
  size_t mask_ = 0;
  size_t size_ = 0;
  // Most pairs that are asked for have no rank. One bit each says so for nine of ten, from a table
  // that fits the second-level cache, which that of the slots of a large vocabulary does not.
  std::vector<uint64_t> filter_ = std::vector<uint64_t>(1);
  int filter_shift_ = 58;
};

// Joins symbols; keeps its buffers between calls. One per thread.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}

  // Merges `symbols` in place. Short inputs by scanning for the minimum, long ones with a queue in
  // O(n log n).
  void run(std::vector<uint32_t>* symbols);

 private:
  void run_short(std::vector<uint32_t>* symbols);
  void run_long(std::vector<uint32_t>* symbols);
  void enqueue(uint32_t position);

  const MergeTable& table_;
  std::vector<Merge> pair_;     // pair_[i]: the merge of the symbol at i with the next one
  std::vector<uint32_t> next_;  // run_long: neighbours by position; n = none
  std::vector<uint32_t> previous_;
  std::vector<uint64_t> queue_;  // rank << 32 | position, a min-heap
};

}  // namespace okibi::tokenizer
