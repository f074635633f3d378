// The pool behind parallel_for. One control word says which job is open and how many workers are
// inside it; workers join a job only while it is open, so a worker that sleeps or was descheduled
// never holds the caller up. Knows nothing of what the jobs compute.
//
// Thread rule: run() is called by one thread at a time; everything shared is atomic, except the job
// fields, which are written only while no worker is inside and published by the control word.
#include "platform/thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace okibi {
namespace {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The control word: epoch << 17 | open << 16 | workers inside.
constexpr uint64_t kActiveMask = 0xffff;
constexpr uint64_t kOpen = 1u << 16;
constexpr int kEpochShift = 17;

// Operations of a forward pass follow each other within microseconds; sampling between two tokens
// takes tens. Waking a sleeper costs about as much as this spin.
constexpr auto kSpin = std::chrono::microseconds(50);
// With more threads than processors a spinning worker only takes time from a working one.
constexpr auto kSpinCrowded = std::chrono::microseconds(2);

}  // namespace

struct ThreadPool::State {
  // Separate cache lines: workers poll `control` while the others hammer `next`.
  alignas(64) std::atomic<uint64_t> control{0};
  alignas(64) std::atomic<int64_t> next{0};
  struct alignas(64) Home {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Home> homes;  // one per thread; used instead of `next` where there are homes
  bool has_homes = false;
  alignas(64) std::atomic<int> n_sleepers{0};
  std::atomic<bool> stop{false};

  // The job; see the thread rule above.
  int64_t n = 0;
  int64_t grain = 1;
  int64_t share = 0;  // 0: ranges of `grain`; else a range is what is left / share, in whole grains
  Trampoline call = nullptr;
  const void* fn = nullptr;

  std::chrono::nanoseconds spin = kSpin;
  std::mutex mutex;  // guards sleeping only: between the last look at `control` and the wait
  std::condition_variable wake;
  std::vector<std::thread> workers;

  // Everybody's part, one's own first.
  void work_at_home(int thread) {
    const size_t n_homes = homes.size();
    for (size_t i = 0; i < n_homes; ++i) {
      Home& home = homes[(static_cast<size_t>(thread) + i) % n_homes];
      while (home.next.load(std::memory_order_relaxed) < home.end) {
        const int64_t begin = home.next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= home.end) break;
        call(fn, begin, begin + grain < home.end ? begin + grain : home.end, thread);
      }
    }
  }

  void work(int thread) {
    if (has_homes) return work_at_home(thread);
    while (true) {
      int64_t begin = next.load(std::memory_order_relaxed), end = 0;
      do {
        if (begin >= n) return;
        const int64_t wanted = share == 0 ? grain : (n - begin) / share / grain * grain;
        end = begin + (wanted > grain ? wanted : grain);
        if (end > n) end = n;
      } while (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
      call(fn, begin, end, thread);
    }
  }

  // True when there is something to do that this worker has not seen: a new open job, or the end.
  bool has_news(uint64_t seen_epoch) const {
    const uint64_t c = control.load(std::memory_order_seq_cst);
    return stop.load(std::memory_order_relaxed) ||
           ((c & kOpen) != 0 && (c >> kEpochShift) != seen_epoch);
  }

  void wait_for_news(uint64_t seen_epoch) {
    const auto deadline = std::chrono::steady_clock::now() + spin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (has_news(seen_epoch)) return;
        cpu_relax();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    std::unique_lock<std::mutex> lock(mutex);
    // Announced before the last look: the caller publishes a job first and looks for sleepers
    // second, so one of the two always sees the other.
    n_sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return has_news(seen_epoch); });
    n_sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  void worker_loop(int thread) {
    uint64_t seen_epoch = 0;
    while (true) {
      wait_for_news(seen_epoch);
      if (stop.load(std::memory_order_relaxed)) return;
      uint64_t c = control.load(std::memory_order_relaxed);
      while ((c & kOpen) != 0 && (c >> kEpochShift) != seen_epoch) {
        if (!control.compare_exchange_weak(c, c + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
          continue;
        }
        seen_epoch = c >> kEpochShift;
        work(thread);
        control.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads), state_(std::make_unique<State>()) {
  CHECK(n_threads >= 1 && n_threads < 4096, "n_threads=%d", n_threads);
  state_->homes = std::vector<State::Home>(static_cast<size_t>(n_threads));
  const unsigned n_cpus = std::thread::hardware_concurrency();
  if (n_cpus != 0 && n_cpus < static_cast<unsigned>(n_threads)) state_->spin = kSpinCrowded;
  state_->workers.reserve(static_cast<size_t>(n_threads) - 1);
  for (int i = 1; i < n_threads; ++i) {
    state_->workers.emplace_back([this, i] { state_->worker_loop(i); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop.store(true, std::memory_order_seq_cst);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run(int64_t n, int64_t grain, Ranges ranges, Trampoline call, const void* fn) {
  DCHECK(grain >= 1, "grain=%lld", static_cast<long long>(grain));
  if (n <= 0) return;
  if (n_threads_ == 1 || n <= grain) {
    call(fn, 0, n, 0);
    return;
  }
  State& s = *state_;
  s.n = n;
  s.grain = grain;
  s.share = ranges == Ranges::kShrinking ? 2 * n_threads_ : 0;
  s.has_homes = ranges == Ranges::kAtHome;
  if (s.has_homes) {
    const int64_t n_grains = (n + grain - 1) / grain;
    for (int t = 0; t < n_threads_; ++t) {
      State::Home& home = s.homes[static_cast<size_t>(t)];
      home.next.store(n_grains * t / n_threads_ * grain, std::memory_order_relaxed);
      const int64_t end = n_grains * (t + 1) / n_threads_ * grain;
      home.end = end < n ? end : n;
    }
  }
  s.call = call;
  s.fn = fn;
  s.next.store(0, std::memory_order_relaxed);
  // No worker is inside and the old job is closed, so the word is ours to replace.
  const uint64_t epoch = (s.control.load(std::memory_order_relaxed) >> kEpochShift) + 1;
  s.control.store(epoch << kEpochShift | kOpen, std::memory_order_seq_cst);
  if (s.n_sleepers.load(std::memory_order_seq_cst) > 0) {
    // Empty on purpose: a worker between its last look and its wait holds the mutex.
    { const std::lock_guard<std::mutex> lock(s.mutex); }
    s.wake.notify_all();
  }
  s.work(0);
  s.control.fetch_and(~kOpen, std::memory_order_relaxed);
  int spins = 0;
  while ((s.control.load(std::memory_order_acquire) & kActiveMask) != 0) {
    // A worker that lost its processor in the middle of a range needs ours.
    if (++spins > 4096) {
      std::this_thread::yield();
    } else {
      cpu_relax();
    }
  }
}

}  // namespace okibi
