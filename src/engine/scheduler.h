// The engine thread and its queue. Everything mutable behind an Engine (backend, pools, sequences)
// is touched on this thread only. Work items (tokens to append to a sequence) are cut into chunks
// and batched together step by step, higher priority first, so that a question waits for at most
// one chunk of somebody's long prefill. Calls run between steps, in order of arrival.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/core.h"
#include "okibi/session.h"
#include "okibi/status.h"

namespace okibi::engine {

// Set once by the engine thread, waited for by a caller.
class Event {
 public:
  void set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    ready_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return set_; });
  }
  void reset() { set_ = false; }  // only while nobody waits or sets

 private:
  std::mutex mutex_;  // guards set_
  std::condition_variable ready_;
  bool set_ = false;
};

// Tokens to append to one sequence. The creator keeps it alive until `finished` is set; `status`
// then says how it went. Reusable after `finished.reset()`.
struct Work {
  reuse::Sequence* sequence = nullptr;
  std::vector<TokenId> tokens;
  // Empty, or beside `tokens`: rows that take the place of the token's embedding, or null. What
  // they point to lives until `finished`.
  std::vector<const float*> embeddings;
  Priority priority = Priority::kNormal;
  uint32_t max_chunk = 0;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(size_t done)> on_progress;
  // On the engine thread, before memory for the tokens is taken.
  std::function<void(Core&)> before_start;

  // Outputs wanted: the last position (unless `no_output`), or every position with `all_positions`.
  bool all_positions = false;
  bool no_output = false;
  std::vector<TokenId> labels;  // when not empty, only these rows of the output matrix
  // On the engine thread; index counts within `tokens`; (n_vocab) or (labels.size()) values.
  std::function<void(size_t index, std::span<const float> logits)> on_logits;
  // The same for the positions that each token attends to (StepItem).
  std::function<void(size_t index, uint32_t layer, std::span<const uint32_t> positions)>
      on_selection;

  Event finished;
  Status status;

  // Owned by the scheduler.
  size_t done = 0;
  uint64_t arrival = 0;
  bool is_prepared = false;
};

class Scheduler {
 public:
  explicit Scheduler(std::unique_ptr<Core> core);
  ~Scheduler();  // fails everything still queued with kUnavailable, then joins

  // Queues; `work->finished` is set when it is done.
  void submit(Work* work);
  // Queues several at once, so that they share their first step, and waits for all. The first
  // failure is returned; the others have run or failed too.
  Status run(std::span<Work* const> works);
  Status run(Work* work);
  // Runs fn(core) on the engine thread between steps and waits for it.
  void call(const std::function<void(Core&)>& fn);
  // The same for work as long as a step (encoding a view): only one of these runs between two
  // steps, in order of arrival, so that nobody's tokens wait for many.
  void call_between_steps(const std::function<void(Core&)>& fn);

  // Works that the engine thread has not taken up yet; safe inside `call`.
  size_t n_incoming();

  // Immutable facts, readable from anywhere.
  const Core& facts() const { return *core_; }

 private:
  void loop();
  bool take_incoming();  // false when the engine shuts down
  void enqueue_and_wait(std::deque<std::function<void(Core&)>>& queue,
                        const std::function<void(Core&)>& fn);
  void step();
  // Adds the next chunk of `work` to the step being assembled, if it fits.
  void add_to_step(Work* work);
  void finish(Work* work, Status status);

  std::unique_ptr<Core> core_;
  std::mutex mutex_;  // guards the queues and stop_
  std::condition_variable wake_;
  std::deque<std::function<void(Core&)>> calls_, long_calls_;
  std::vector<Work*> incoming_;
  bool stop_ = false;
  uint64_t next_arrival_ = 0;
  // Engine thread only.
  std::vector<Work*> active_;
  std::vector<StepItem> items_;    // the step being assembled
  std::vector<Work*> item_works_;  // beside items_
  uint32_t step_rows_ = 0, step_outputs_ = 0;
  bool step_has_full_ = false, step_has_labels_ = false;
  std::thread thread_;
};

}  // namespace okibi::engine
