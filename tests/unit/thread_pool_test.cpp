#include "platform/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace okibi {
namespace {

TEST(ThreadPool, CoversEveryIndexExactlyOnceInWholeGrains) {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_TRUE(thread >= 0 && thread < n_threads) << thread;
          EXPECT_LT(begin, end);
          if (n_threads > 1 && n > grain) {
            EXPECT_EQ(begin % grain, 0);
            EXPECT_TRUE(end == n || end - begin == grain) << begin << ".." << end;
          }
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        pool.parallel_for_shrinking(n, grain, [&](int64_t begin, int64_t end, int) {
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        pool.parallel_for_at_home(n, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_TRUE(thread >= 0 && thread < n_threads) << thread;
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          if (n_threads > 1 && n > grain) {
            EXPECT_TRUE(end == n || end - begin == grain) << begin << ".." << end;
          }
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const std::atomic<int>& count : seen) ASSERT_EQ(count.load(), 3);
      }
    }
  }
}

TEST(ThreadPool, SeesTheWritesOfItsWorkersAfterEachJob) {
  ThreadPool pool(4);
  std::vector<int64_t> values(256, 0);
  for (int64_t round = 1; round <= 2000; ++round) {
    pool.parallel_for(256, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), round * 255 * 128);
  }
}

TEST(ThreadPool, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::atomic<int> n_inside{0}, most{0};
    // Ends only if a second thread joins, which it does however late it wakes.
    pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
      const int inside = ++n_inside;
      if (inside > most) most = inside;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (most.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    EXPECT_EQ(most.load(), 2) << "round " << round;
  }
}

TEST(ThreadPool, GivesEachThreadItsOwnNumber) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> users(4);
  std::atomic<bool> clash{false};
  pool.parallel_for(400, 1, [&](int64_t, int64_t, int thread) {
    if (users[static_cast<size_t>(thread)].fetch_add(1) != 0) clash = true;
    std::this_thread::yield();
    users[static_cast<size_t>(thread)].fetch_sub(1);
  });
  EXPECT_FALSE(clash.load());
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(i % 5 + 1);
}

}  // namespace
}  // namespace okibi
