// A persistent pool for short, frequent pieces of parallel work. The calling thread takes part.
// Workers spin for some microseconds after a job (the next operation of a forward pass follows at
// once) and then sleep.
#pragma once

#include <cstdint>
#include <memory>

namespace okibi {

class ThreadPool {
 public:
  // n_threads >= 1 counts the caller; 1 means that everything runs inline.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls fn(begin, end, thread) until [0, n) is covered exactly once, in ranges that are multiples
  // of `grain` except the last; `thread` is in [0, n_threads). Ranges are handed out as threads
  // become free, so what a range computes must not depend on who computes it. Blocks until done.
  // One caller at a time (the engine thread).
  template <typename Fn>
  void parallel_for(int64_t n, int64_t grain, const Fn& fn) {
    run(n, grain, Ranges::kEqual, &invoke<Fn>, &fn);
  }

  // The same in ranges that shrink with what is left, down to `grain`: long reads at first, and
  // threads that finish together. For work that streams memory.
  template <typename Fn>
  void parallel_for_shrinking(int64_t n, int64_t grain, const Fn& fn) {
    run(n, grain, Ranges::kShrinking, &invoke<Fn>, &fn);
  }

  // The same in ranges of `grain`, where thread t begins with part t of n_threads equal parts and
  // takes from others' parts only when its own is done. Jobs over the same rows, one after another,
  // so find what they read in the caches of the core that wrote it.
  template <typename Fn>
  void parallel_for_at_home(int64_t n, int64_t grain, const Fn& fn) {
    run(n, grain, Ranges::kAtHome, &invoke<Fn>, &fn);
  }

 private:
  using Trampoline = void (*)(const void* fn, int64_t begin, int64_t end, int thread);
  template <typename Fn>
  static void invoke(const void* fn, int64_t begin, int64_t end, int thread) {
    (*static_cast<const Fn*>(fn))(begin, end, thread);
  }
  enum class Ranges : uint8_t { kEqual, kShrinking, kAtHome };
  void run(int64_t n, int64_t grain, Ranges ranges, Trampoline call, const void* fn);

  struct State;
  int n_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace okibi
