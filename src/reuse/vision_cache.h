// What is kept of pictures, so that a known one costs nothing: level L0 from a file's bytes to its
// layout in views, level L1 from a view's pixels to its projected rows. One budget in bytes for
// both, keys and bookkeeping included, least recently used first; memory only.
//
// Promises. The first caller of a key computes, others of that key wait for it and share what comes
// (or its error, which is not kept); callers of other keys never wait. What somebody holds is
// pinned: it stays counted and is not evicted. A value that does not fit is handed out and not
// kept. A budget of 0 turns both levels off: every call computes. Nothing kept changes a result.
//
// Thread rule: any thread; `compute` runs on the caller's, without the lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "okibi/status.h"

namespace okibi::reuse {

// A view's rows in the text model's width.
struct ViewRows {
  Sha256 view = {};      // of the view's sides and pixels
  Sha256 identity = {};  // of whatever computed them
  uint32_t n_rows = 0;
  int64_t width = 0;
  std::vector<float> values;  // (n_rows, width)

  const float* row(uint32_t i) const { return values.data() + int64_t{i} * width; }
  uint64_t bytes() const { return sizeof *this + values.capacity() * sizeof(float); }
};

// Which views a picture has, in the order of the prompt.
struct PictureLayout {
  struct View {
    Sha256 digest = {};
    int32_t width = 0, height = 0;
    uint32_t n_tokens = 0;
  };
  int32_t width = 0, height = 0;  // of the upright picture
  bool is_tiled = false;
  int32_t columns = 1, rows = 1;  // of the tiles; a thumbnail may follow them
  bool has_thumbnail = false;
  std::vector<View> views;

  uint64_t bytes() const { return sizeof *this + views.capacity() * sizeof(View); }
};

struct VisionKey {
  Sha256 space = {};  // key_space
  Sha256 content = {};
  bool operator==(const VisionKey&) const = default;
};

enum class VisionLevel : uint8_t { kBytes, kView };  // L0, L1
constexpr size_t kNVisionLevels = 2;

struct VisionCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;  // computed here
  uint64_t joined = 0;  // waited for another caller's computation
  uint64_t failures = 0;
  uint64_t evictions = 0;
  uint64_t not_stored = 0;  // too large for what the budget has left beside pinned entries
  uint64_t entries = 0;
  uint64_t bytes = 0;
};

class VisionCache {
 public:
  enum class Outcome { kHit, kComputed, kJoined };
  template <typename T>
  using Compute = std::function<Result<T>()>;

  explicit VisionCache(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  Result<std::shared_ptr<const PictureLayout>> layout(const VisionKey& key,
                                                      const Compute<PictureLayout>& compute,
                                                      Outcome* outcome);
  Result<std::shared_ptr<const ViewRows>> rows(const VisionKey& key,
                                               const Compute<ViewRows>& compute, Outcome* outcome);
  // What is kept under the key, or null. Does not count as a miss.
  std::shared_ptr<const PictureLayout> find_layout(const VisionKey& key);
  std::shared_ptr<const ViewRows> find_rows(const VisionKey& key);

  VisionCounters counters(VisionLevel level) const;
  uint64_t budget_bytes() const { return budget_bytes_; }
  // Forgets everything; what somebody holds lives until he lets go.
  void clear();
  // What an entry takes besides its value.
  static uint64_t entry_overhead();

 private:
  struct Key {
    VisionLevel level = VisionLevel::kBytes;
    VisionKey key;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const void> value;
    uint64_t bytes = 0;  // with overhead
  };
  // A computation in progress. Guarded by mutex_.
  struct Flight {
    std::condition_variable landed;
    bool has_landed = false;
    Status status;
    std::shared_ptr<const void> value;
  };
  struct Computed {
    std::shared_ptr<const void> value;
    uint64_t bytes = 0;
  };

  Result<std::shared_ptr<const void>> get(const Key& key,
                                          const std::function<Result<Computed>()>& compute,
                                          Outcome* outcome);
  std::shared_ptr<const void> find(const Key& key);
  // With mutex_ held.
  std::shared_ptr<const void> touch(const Key& key);
  void store(const Key& key, const Computed& computed);
  VisionCounters& count(const Key& key) { return counters_[static_cast<size_t>(key.level)]; }

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;  // guards everything below
  std::list<Entry> entries_;  // latest first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
  std::unordered_map<Key, std::shared_ptr<Flight>, KeyHash> flights_;
  uint64_t bytes_ = 0;
  VisionCounters counters_[kNVisionLevels];
};

}  // namespace okibi::reuse
