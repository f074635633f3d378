// A bounded queue and the threads that work on it. What does not fit is refused at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace okibi::server {

class JobQueue {
 public:
  JobQueue(size_t n_workers, size_t max_waiting);
  ~JobQueue();  // as finish()
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Runs what waits, then ends the threads. Everything else may be asked afterwards too.
  void finish();
  bool try_push(std::function<void()> job);
  bool is_full() const;
  size_t n_waiting() const;
  size_t n_running() const;

 private:
  void work();

  const size_t n_workers_, max_waiting_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  size_t n_running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace okibi::server
