#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace okibi::engine {

Scheduler::Scheduler(std::unique_ptr<Core> core)
    : core_(std::move(core)), thread_([this] { loop(); }) {}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Scheduler::submit(Work* work) {
  {
    std::lock_guard lock(mutex_);
    work->arrival = next_arrival_++;
    incoming_.push_back(work);
  }
  wake_.notify_one();
}

Status Scheduler::run(std::span<Work* const> works) {
  {
    std::lock_guard lock(mutex_);
    for (Work* work : works) {
      work->arrival = next_arrival_++;
      incoming_.push_back(work);
    }
  }
  wake_.notify_one();
  Status first;
  for (Work* work : works) {
    work->finished.wait();
    if (first.ok()) first = work->status;
  }
  return first;
}

Status Scheduler::run(Work* work) {
  Work* const works[] = {work};
  return run(works);
}

void Scheduler::call(const std::function<void(Core&)>& fn) {
  enqueue_and_wait(calls_, fn);
}

void Scheduler::call_between_steps(const std::function<void(Core&)>& fn) {
  enqueue_and_wait(long_calls_, fn);
}

void Scheduler::enqueue_and_wait(std::deque<std::function<void(Core&)>>& queue,
                                 const std::function<void(Core&)>& fn) {
  Event done;
  {
    std::lock_guard lock(mutex_);
    queue.push_back([&fn, &done](Core& core) {
      fn(core);
      done.set();
    });
  }
  wake_.notify_one();
  done.wait();
}

size_t Scheduler::n_incoming() {
  std::lock_guard lock(mutex_);
  return incoming_.size();
}

bool Scheduler::take_incoming() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] {
    return stop_ || !calls_.empty() || !long_calls_.empty() || !incoming_.empty() ||
           !active_.empty();
  });
  const auto run_first = [&](std::deque<std::function<void(Core&)>>& queue) {
    const std::function<void(Core&)> fn = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    fn(*core_);
    lock.lock();
  };
  while (!calls_.empty()) run_first(calls_);
  if (!long_calls_.empty()) run_first(long_calls_);
  for (Work* work : incoming_) {
    work->done = 0;
    work->is_prepared = false;
    active_.push_back(work);
  }
  incoming_.clear();
  return !stop_;
}

void Scheduler::loop() {
  while (take_incoming()) step();
  for (Work* work : active_) {
    work->status = unavailable("the engine is shutting down");
    work->finished.set();
  }
  active_.clear();
}

void Scheduler::add_to_step(Work* work) {
  const Core::Sizes& sizes = core_->sizes();
  const size_t remaining = work->tokens.size() - work->done;
  size_t n = std::min<size_t>(remaining, sizes.max_batch_rows - step_rows_);
  if (work->max_chunk > 0) n = std::min<size_t>(n, work->max_chunk);
  if (work->all_positions) n = std::min<size_t>(n, sizes.max_outputs - step_outputs_);
  if (n == 0) return;
  const bool ends = n == remaining;
  const bool has_output = !work->no_output && (work->all_positions || ends);
  if (has_output) {
    // A step computes either full rows of logits or labels; the other kind waits for the next one.
    const bool wants_labels = !work->labels.empty();
    if (step_outputs_ == sizes.max_outputs) return;
    if (wants_labels ? step_has_full_ : step_has_labels_) return;
    (wants_labels ? step_has_labels_ : step_has_full_) = true;
  }

  StepItem& item = items_.emplace_back();
  item.sequence = work->sequence;
  item.tokens = std::span(work->tokens).subspan(work->done, n);
  if (!work->embeddings.empty()) {
    item.embeddings = std::span(work->embeddings).subspan(work->done, n);
  }
  const size_t n_outputs = !has_output ? 0 : work->all_positions ? n : 1;
  item.first_output = static_cast<uint32_t>(n - n_outputs);
  item.labels = work->labels;
  if (work->on_logits) {
    item.on_logits = [work](uint32_t index, std::span<const float> logits) {
      work->on_logits(work->done + index, logits);
    };
  }
  if (work->on_selection) {
    item.on_selection = [work](uint32_t index, uint32_t layer,
                               std::span<const uint32_t> positions) {
      work->on_selection(work->done + index, layer, positions);
    };
  }
  item_works_.push_back(work);
  step_rows_ += static_cast<uint32_t>(n);
  step_outputs_ += static_cast<uint32_t>(n_outputs);
}

void Scheduler::step() {
  // Memory for all of a work's tokens is taken before its first step, so that it fails early and
  // whole or not at all.
  for (size_t i = 0; i < active_.size();) {
    Work* work = active_[i];
    if (work->cancel != nullptr && work->cancel->load(std::memory_order_relaxed)) {
      finish(work, cancelled("cancelled by the caller"));
    } else if (work->tokens.empty()) {
      finish(work, ok_status());
    } else if (!work->is_prepared) {
      if (work->before_start) work->before_start(*core_);
      Status status = core_->prepare(*work->sequence, static_cast<uint32_t>(work->tokens.size()));
      work->is_prepared = status.ok();
      if (status.ok()) {
        ++i;
      } else {
        finish(work, std::move(status));
      }
    } else {
      ++i;
    }
  }
  if (active_.empty()) return;

  std::sort(active_.begin(), active_.end(), [](const Work* a, const Work* b) {
    if (a->priority != b->priority) return a->priority > b->priority;
    return a->arrival < b->arrival;
  });
  items_.clear();
  item_works_.clear();
  step_rows_ = step_outputs_ = 0;
  step_has_full_ = step_has_labels_ = false;
  for (Work* work : active_) add_to_step(work);
  CHECK(!items_.empty());
  core_->run_step(items_);

  for (size_t i = 0; i < items_.size(); ++i) {
    Work* work = item_works_[i];
    work->done += items_[i].tokens.size();
    if (work->on_progress) work->on_progress(work->done);
    if (work->done == work->tokens.size()) finish(work, ok_status());
  }
}

void Scheduler::finish(Work* work, Status status) {
  active_.erase(std::find(active_.begin(), active_.end(), work));
  work->status = std::move(status);
  work->finished.set();  // the work may be gone after this line
}

}  // namespace okibi::engine
