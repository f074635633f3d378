#include "server/job_queue.h"

#include <utility>

namespace okibi::server {

JobQueue::JobQueue(size_t n_workers, size_t max_waiting)
    : n_workers_(n_workers), max_waiting_(max_waiting) {
  for (size_t i = 0; i < n_workers; ++i) threads_.emplace_back([this] { work(); });
}

JobQueue::~JobQueue() {
  finish();
}

void JobQueue::finish() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// A job that an idle worker will take at once does not count as waiting.
bool JobQueue::try_push(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (stop_ || n_running_ + waiting_.size() >= n_workers_ + max_waiting_) return false;
    waiting_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

bool JobQueue::is_full() const {
  std::lock_guard lock(mutex_);
  return n_running_ + waiting_.size() >= n_workers_ + max_waiting_;
}

size_t JobQueue::n_waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

size_t JobQueue::n_running() const {
  std::lock_guard lock(mutex_);
  return n_running_;
}

void JobQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> job = std::move(waiting_.front());
    waiting_.pop_front();
    ++n_running_;
    lock.unlock();
    job();
    job = nullptr;  // what it held may ask the queue for its length when it goes
    lock.lock();
    --n_running_;
  }
}

}  // namespace okibi::server
