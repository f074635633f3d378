#include "reuse/vision_cache.h"

#include <cstring>
#include <utility>

namespace okibi::reuse {

// The digests are uniform already; scope and level still have to separate.
size_t VisionCache::KeyHash::operator()(const Key& key) const {
  uint64_t content, space;
  std::memcpy(&content, key.key.content.data(), sizeof content);
  std::memcpy(&space, key.key.space.data(), sizeof space);
  return static_cast<size_t>(content ^ (space * 0x9e3779b97f4a7c15ull) ^
                             static_cast<uint64_t>(key.level));
}

// A list node, an index node with its bucket, and the control block of a shared pointer.
uint64_t VisionCache::entry_overhead() {
  return sizeof(Entry) + 2 * sizeof(void*) + sizeof(Key) + sizeof(void*) + 3 * sizeof(void*) + 32;
}

std::shared_ptr<const void> VisionCache::touch(const Key& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->value;
}

std::shared_ptr<const void> VisionCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const void> value = touch(key);
  if (value != nullptr) ++count(key).hits;
  return value;
}

// Makes room first, so that the budget is never exceeded. Only the cache itself gives out copies of
// an entry it alone holds, under the lock, so a count of one cannot grow meanwhile.
void VisionCache::store(const Key& key, const Computed& computed) {
  const uint64_t bytes = computed.bytes + entry_overhead();
  uint64_t pinned = 0;
  for (const Entry& e : entries_) pinned += e.value.use_count() > 1 ? e.bytes : 0;
  if (bytes > budget_bytes_ || pinned > budget_bytes_ - bytes) {
    ++count(key).not_stored;
    return;
  }
  for (auto at = entries_.end(); bytes_ + bytes > budget_bytes_ && at != entries_.begin();) {
    --at;
    if (at->value.use_count() > 1) continue;
    VisionCounters& counters = count(at->key);
    ++counters.evictions;
    --counters.entries;
    counters.bytes -= at->bytes;
    bytes_ -= at->bytes;
    index_.erase(at->key);
    at = entries_.erase(at);
  }
  entries_.push_front({key, computed.value, bytes});
  index_.emplace(key, entries_.begin());
  bytes_ += bytes;
  count(key).bytes += bytes;
  ++count(key).entries;
}

Result<std::shared_ptr<const void>> VisionCache::get(
    const Key& key, const std::function<Result<Computed>()>& compute, Outcome* outcome) {
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    if (budget_bytes_ > 0) {
      if (std::shared_ptr<const void> value = touch(key)) {
        ++count(key).hits;
        *outcome = Outcome::kHit;
        return value;
      }
      if (const auto other = flights_.find(key); other != flights_.end()) {
        flight = other->second;
        ++count(key).joined;
        *outcome = Outcome::kJoined;
        flight->landed.wait(lock, [&] { return flight->has_landed; });
        if (!flight->status.ok()) return flight->status;
        return flight->value;
      }
      flight = std::make_shared<Flight>();
      flights_.emplace(key, flight);
    }
    ++count(key).misses;
  }
  *outcome = Outcome::kComputed;
  Result<Computed> computed = compute();
  const std::lock_guard lock(mutex_);
  if (!computed.ok()) ++count(key).failures;
  if (flight != nullptr) {
    flight->has_landed = true;
    flight->status = computed.status();
    if (computed.ok()) {
      store(key, *computed);
      flight->value = computed->value;
    }
    flights_.erase(key);
    flight->landed.notify_all();
  }
  if (!computed.ok()) return computed.status();
  return std::move(computed->value);
}

namespace {

// Calls `compute` and moves its result where shared pointers can hold it.
template <typename T, typename Computed>
std::function<Result<Computed>()> boxed(const std::function<Result<T>()>& compute) {
  return [&compute]() -> Result<Computed> {
    OKIBI_ASSIGN_OR_RETURN(T value, compute());
    auto box = std::make_shared<const T>(std::move(value));
    const uint64_t bytes = box->bytes();
    return Computed{std::move(box), bytes};
  };
}

template <typename T>
Result<std::shared_ptr<const T>> unboxed(Result<std::shared_ptr<const void>> result) {
  if (!result.ok()) return result.status();
  return std::static_pointer_cast<const T>(std::move(result).value());
}

}  // namespace

Result<std::shared_ptr<const PictureLayout>> VisionCache::layout(
    const VisionKey& key, const Compute<PictureLayout>& compute, Outcome* outcome) {
  return unboxed<PictureLayout>(
      get({VisionLevel::kBytes, key}, boxed<PictureLayout, Computed>(compute), outcome));
}

Result<std::shared_ptr<const ViewRows>> VisionCache::rows(const VisionKey& key,
                                                          const Compute<ViewRows>& compute,
                                                          Outcome* outcome) {
  return unboxed<ViewRows>(
      get({VisionLevel::kView, key}, boxed<ViewRows, Computed>(compute), outcome));
}

std::shared_ptr<const PictureLayout> VisionCache::find_layout(const VisionKey& key) {
  return std::static_pointer_cast<const PictureLayout>(find({VisionLevel::kBytes, key}));
}

std::shared_ptr<const ViewRows> VisionCache::find_rows(const VisionKey& key) {
  return std::static_pointer_cast<const ViewRows>(find({VisionLevel::kView, key}));
}

VisionCounters VisionCache::counters(VisionLevel level) const {
  const std::lock_guard lock(mutex_);
  return counters_[static_cast<size_t>(level)];
}

void VisionCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  index_.clear();
  bytes_ = 0;
  for (VisionCounters& counters : counters_) counters.entries = counters.bytes = 0;
}

}  // namespace okibi::reuse
