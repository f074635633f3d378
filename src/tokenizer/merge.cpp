// See merge.h.
#include "tokenizer/merge.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace okibi::tokenizer {
namespace {

// Up to here scanning all pairs for the best one costs less than keeping a queue.
constexpr size_t kShort = 96;
constexpr uint32_t kDead = 0xFFFFFFFF;

}  // namespace

void MergeTable::reserve(size_t n_merges) {
  CHECK(size_ == 0, "reserve comes before insert");
  size_t slots = 16;
  while (slots < 2 * n_merges) slots *= 2;
  slots_.assign(slots, Slot());
  mask_ = slots - 1;
  filter_.assign(slots / 8, 0);  // eight bits a slot, sixteen or more a merge
  filter_shift_ = 64 - std::countr_zero(slots * 8);
}

bool MergeTable::insert(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  const uint64_t hash = hash_of(key);
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.key == key) return false;
    if (slot.key != kFree) continue;
    CHECK(2 * size_ < slots_.size(), "more merges than reserved");
    slot.key = key;
    slot.merge = merge;
    const uint64_t bit = hash >> filter_shift_;
    filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
    ++size_;
    return true;
  }
}

void Merger::run(std::vector<uint32_t>* symbols) {
  if (symbols->size() < 2) return;
  if (symbols->size() <= kShort) {
    run_short(symbols);
  } else {
    run_long(symbols);
  }
}

void Merger::run_short(std::vector<uint32_t>* symbols) {
  uint32_t* const ids = symbols->data();
  size_t n = symbols->size();
  uint32_t ranks[kShort];
  uint32_t results[kShort];
  const auto look_up = [&](size_t i) {
    const Merge merge = table_.find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    results[i] = merge.result;
  };
  for (size_t i = 0; i + 1 < n; ++i) table_.prefetch(ids[i], ids[i + 1]);
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  ranks[n - 1] = kNoRank;
  results[n - 1] = 0;
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = results[best];
    if (best + 2 < n) table_.prefetch(ids[best], ids[best + 2]);
    if (best > 0) table_.prefetch(ids[best - 1], ids[best]);
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --n;
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols->resize(n);
}

void Merger::enqueue(uint32_t position) {
  if (pair_[position].rank == kNoRank) return;
  queue_.push_back(static_cast<uint64_t>(pair_[position].rank) << 32 | position);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

void Merger::run_long(std::vector<uint32_t>* symbols) {
  std::vector<uint32_t>& ids = *symbols;
  const auto n = static_cast<uint32_t>(ids.size());
  pair_.assign(n, Merge());
  next_.resize(n);
  previous_.resize(n);
  queue_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    next_[i] = i + 1;
    previous_[i] = i - 1;
    if (i + 1 == n) break;
    pair_[i] = table_.find(ids[i], ids[i + 1]);
    if (pair_[i].rank != kNoRank) {
      queue_.push_back(static_cast<uint64_t>(pair_[i].rank) << 32 | i);
    }
  }
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  while (!queue_.empty()) {
    const auto rank = static_cast<uint32_t>(queue_.front() >> 32);
    const auto i = static_cast<uint32_t>(queue_.front());
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    queue_.pop_back();
    // An entry whose pair has since changed has another rank; one that happens to have the same
    // rank again is as good as new.
    if (ids[i] == kDead || pair_[i].rank != rank) continue;
    const uint32_t j = next_[i];
    ids[i] = pair_[i].result;
    ids[j] = kDead;
    pair_[j] = Merge();
    next_[i] = next_[j];
    if (next_[i] < n) {
      previous_[next_[i]] = i;
      pair_[i] = table_.find(ids[i], ids[next_[i]]);
      enqueue(i);
    } else {
      pair_[i] = Merge();
    }
    if (i > 0) {
      const uint32_t k = previous_[i];
      pair_[k] = table_.find(ids[k], ids[i]);
      enqueue(k);
    }
  }
  ids.erase(std::remove(ids.begin(), ids.end(), kDead), ids.end());
}

}  // namespace okibi::tokenizer
