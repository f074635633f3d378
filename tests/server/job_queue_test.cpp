#include "server/job_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

namespace okibi::server {
namespace {

TEST(JobQueue, RefusesWhatDoesNotFit) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  JobQueue queue(1, 1);
  EXPECT_TRUE(queue.try_push([open] { open.wait(); }));
  EXPECT_TRUE(queue.try_push([] {}));
  EXPECT_TRUE(queue.is_full());
  EXPECT_FALSE(queue.try_push([] {}));
  gate.set_value();
}

TEST(JobQueue, LetsAJobsEndAskForItsLength) {
  struct Asker {
    JobQueue& queue;
    std::promise<size_t>& answer;
    ~Asker() { answer.set_value(queue.n_waiting()); }
  };
  std::promise<size_t> answer;
  JobQueue queue(1, 1);
  std::shared_ptr<Asker> asker(new Asker{queue, answer});
  ASSERT_TRUE(queue.try_push([asker = std::move(asker)] {}));
  auto future = answer.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(future.get(), 0u);
}

TEST(JobQueue, RunsWhatWaitsBeforeItEnds) {
  int n = 0;
  {
    JobQueue queue(1, 10);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.try_push([&n] { ++n; }));
  }
  EXPECT_EQ(n, 5);
}

}  // namespace
}  // namespace okibi::server
