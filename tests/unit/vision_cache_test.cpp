// The cache of pictures: one computation per key however many ask, honest bytes, pins, errors that
// leave nothing behind, and keys that keep scopes, models and shapes apart.
#include "reuse/vision_cache.h"
#include "reuse/key_space.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

namespace okibi::reuse {
namespace {

using Outcome = VisionCache::Outcome;

constexpr int64_t kWidth = 16;

Sha256 digest_of(const std::string& text) {
  return sha256(bytes_of(text));
}

VisionKey key_of(const std::string& content, const std::string& scope = "",
                 const std::string& identity = "model") {
  return {key_space(scope, digest_of(identity)), digest_of(content)};
}

ViewRows make_rows(float value, uint32_t n_rows = 4) {
  ViewRows rows;
  rows.n_rows = n_rows;
  rows.width = kWidth;
  rows.values.assign(n_rows * static_cast<size_t>(kWidth), value);
  return rows;
}

uint64_t stored_bytes(uint32_t n_rows = 4) {
  return make_rows(0, n_rows).bytes() + VisionCache::entry_overhead();
}

// Asks for the key; counts computations.
struct Asker {
  VisionCache& cache;
  int n_computed = 0;
  Outcome outcome = Outcome::kHit;

  std::shared_ptr<const ViewRows> ask(const VisionKey& key, float value = 1, uint32_t n_rows = 4) {
    auto rows = cache.rows(
        key,
        [&]() -> Result<ViewRows> {
          ++n_computed;
          return make_rows(value, n_rows);
        },
        &outcome);
    EXPECT_TRUE(rows.ok());
    return rows.ok() ? *rows : nullptr;
  }
};

TEST(VisionCache, ASecondRequestIsAHitAndBytesAreCountedWithKeysAndBookkeeping) {
  VisionCache cache(1 << 20);
  Asker a{cache};
  EXPECT_EQ(a.ask(key_of("a"), 3)->values[0], 3);
  EXPECT_EQ(a.outcome, Outcome::kComputed);
  EXPECT_EQ(a.ask(key_of("a"), 4)->values[0], 3);
  EXPECT_EQ(a.outcome, Outcome::kHit);
  EXPECT_EQ(a.n_computed, 1);
  const VisionCounters c = cache.counters(VisionLevel::kView);
  EXPECT_EQ(c.hits, 1u);
  EXPECT_EQ(c.misses, 1u);
  EXPECT_EQ(c.entries, 1u);
  EXPECT_EQ(c.bytes, stored_bytes());
  EXPECT_GT(c.bytes, 4 * kWidth * sizeof(float) + sizeof(VisionKey));
  EXPECT_EQ(cache.counters(VisionLevel::kBytes).misses, 0u);
}

TEST(VisionCache, KeysSeparateScopesModelsContentsAndLevels) {
  VisionCache cache(1 << 20);
  Asker a{cache};
  for (const VisionKey& key : {key_of("a"), key_of("b"), key_of("a", "tenant"),
                               key_of("a", "", "other model"), key_of("a", "tenant2")}) {
    a.ask(key);
    EXPECT_EQ(a.outcome, Outcome::kComputed);
  }
  EXPECT_EQ(a.n_computed, 5);
  // A scope cannot be continued into the identity.
  EXPECT_NE(key_space("ab", digest_of("c")), key_space("a", digest_of("bc")));
  Outcome outcome;
  bool computed = false;
  auto layout = cache.layout(
      key_of("a"),
      [&]() -> Result<PictureLayout> {
        computed = true;
        return PictureLayout{.width = 7};
      },
      &outcome);
  EXPECT_TRUE(layout.ok() && computed && (*layout)->width == 7);
}

TEST(VisionCache, TwoModelsCachesShareNothing) {
  VisionCache one(1 << 20), two(1 << 20);
  Asker a{one}, b{two};
  a.ask(key_of("a"), 1);
  EXPECT_EQ(b.ask(key_of("a"), 2)->values[0], 2);
  EXPECT_EQ(b.outcome, Outcome::kComputed);
}

TEST(VisionCache, ConcurrentIdenticalMissesComputeOnceWhileOtherKeysProceed) {
  VisionCache cache(1 << 20);
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> n_computed{0};
  std::atomic<bool> started{false};
  const auto slow = [&]() -> Result<ViewRows> {
    ++n_computed;
    started = true;
    released.wait();
    return make_rows(5);
  };
  std::vector<std::future<Outcome>> callers;
  for (int i = 0; i < 16; ++i) {
    callers.push_back(std::async(std::launch::async, [&] {
      Outcome outcome;
      auto rows = cache.rows(key_of("slow"), slow, &outcome);
      EXPECT_TRUE(rows.ok() && (*rows)->values[0] == 5);
      return outcome;
    }));
  }
  while (!started) std::this_thread::yield();
  // Another key is computed, and hit, while the first one is still in flight.
  Asker other{cache};
  other.ask(key_of("quick"));
  other.ask(key_of("quick"));
  EXPECT_EQ(other.outcome, Outcome::kHit);
  while (cache.counters(VisionLevel::kView).joined < 15) std::this_thread::yield();
  release.set_value();
  int n_joined = 0;
  for (auto& caller : callers) n_joined += caller.get() == Outcome::kJoined;
  EXPECT_EQ(n_computed, 1);
  EXPECT_EQ(n_joined, 15);
  EXPECT_EQ(cache.counters(VisionLevel::kView).misses, 2u);
}

TEST(VisionCache, AFailureWakesTheWaitersWithItsErrorAndIsNotKept) {
  VisionCache cache(1 << 20);
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  const auto failing = [&]() -> Result<ViewRows> {
    released.wait();
    return bad_data("the picture is torn");
  };
  std::vector<std::future<Status>> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(std::async(std::launch::async, [&] {
      Outcome outcome;
      return cache.rows(key_of("a"), failing, &outcome).status();
    }));
  }
  while (cache.counters(VisionLevel::kView).joined < 3) std::this_thread::yield();
  release.set_value();
  for (auto& caller : callers) EXPECT_EQ(caller.get().message(), "the picture is torn");
  const VisionCounters c = cache.counters(VisionLevel::kView);
  EXPECT_EQ(c.failures, 1u);
  EXPECT_EQ(c.entries, 0u);
  EXPECT_EQ(c.bytes, 0u);
  Asker a{cache};
  EXPECT_EQ(a.ask(key_of("a"), 2)->values[0], 2);
  EXPECT_EQ(a.outcome, Outcome::kComputed);
}

TEST(VisionCache, TheLeastRecentlyUsedIsEvictedAndTheBudgetHolds) {
  VisionCache cache(3 * stored_bytes());
  Asker a{cache};
  for (const char* name : {"a", "b", "c"}) a.ask(key_of(name));
  a.ask(key_of("a"));  // now b is the oldest
  a.ask(key_of("d"));
  const VisionCounters c = cache.counters(VisionLevel::kView);
  EXPECT_EQ(c.evictions, 1u);
  EXPECT_EQ(c.entries, 3u);
  EXPECT_LE(c.bytes, cache.budget_bytes());
  EXPECT_EQ(cache.find_rows(key_of("b")), nullptr);
  for (const char* name : {"a", "c", "d"})
    EXPECT_NE(cache.find_rows(key_of(name)), nullptr) << name;
}

TEST(VisionCache, WhatSomebodyHoldsIsPinnedAndStaysCounted) {
  VisionCache cache(2 * stored_bytes());
  Asker a{cache};
  const auto held = a.ask(key_of("held"), 9);
  for (const char* name : {"b", "c", "d"}) a.ask(key_of(name));
  EXPECT_NE(cache.find_rows(key_of("held")), nullptr);
  const auto also_held = a.ask(key_of("d"));
  EXPECT_EQ(a.outcome, Outcome::kHit);
  // All is pinned: a new value is handed out and not kept.
  EXPECT_EQ(a.ask(key_of("e"), 8)->values[0], 8);
  EXPECT_EQ(cache.counters(VisionLevel::kView).not_stored, 1u);
  EXPECT_EQ(cache.find_rows(key_of("e")), nullptr);
  EXPECT_LE(cache.counters(VisionLevel::kView).bytes, cache.budget_bytes());
}

TEST(VisionCache, AnEntryLargerThanTheBudgetIsUsedAndNotKept) {
  VisionCache cache(2 * stored_bytes());
  Asker a{cache};
  a.ask(key_of("small"));
  EXPECT_EQ(a.ask(key_of("large"), 7, 100)->n_rows, 100u);
  EXPECT_EQ(cache.find_rows(key_of("large")), nullptr);
  EXPECT_NE(cache.find_rows(key_of("small")), nullptr) << "nothing is evicted in vain";
  EXPECT_EQ(cache.counters(VisionLevel::kView).not_stored, 1u);
}

TEST(VisionCache, ABudgetOfZeroComputesEveryTime) {
  VisionCache cache(0);
  Asker a{cache};
  a.ask(key_of("a"));
  a.ask(key_of("a"));
  EXPECT_EQ(a.n_computed, 2);
  EXPECT_EQ(cache.counters(VisionLevel::kView).hits, 0u);
  EXPECT_EQ(cache.counters(VisionLevel::kView).bytes, 0u);
}

TEST(VisionCache, ClearForgetsAndWhatIsHeldLivesOn) {
  VisionCache cache(1 << 20);
  Asker a{cache};
  const auto held = a.ask(key_of("a"), 6);
  cache.clear();
  EXPECT_EQ(cache.counters(VisionLevel::kView).bytes, 0u);
  EXPECT_EQ(held->values[0], 6);
  a.ask(key_of("a"));
  EXPECT_EQ(a.outcome, Outcome::kComputed);
}

TEST(VisionCache, ManyDistinctKeysLeaveItsMemoryFlat) {
  VisionCache cache(10 * stored_bytes());
  Asker a{cache};
  for (int i = 0; i < 10000; ++i) a.ask(key_of(std::to_string(i)));
  const VisionCounters c = cache.counters(VisionLevel::kView);
  EXPECT_EQ(c.entries, 10u);
  EXPECT_EQ(c.evictions, 9990u);
  EXPECT_EQ(c.bytes, 10 * stored_bytes());
}

}  // namespace
}  // namespace okibi::reuse
