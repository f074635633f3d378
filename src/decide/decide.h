// Running the prompts of a decision: the shared tokens once (or not at all, when an earlier request
// left them), then a fork per prompt, all suffixes together, as many at a time as the memory for
// forks allows. Works on token ids alone, so tests can drive it without a chat layout. Public door:
// decide (okibi/decision.h). Called from any thread; sequences are made, copied and destroyed on
// the engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "decide/prompt.h"
#include "engine/scheduler.h"
#include "okibi/status.h"
#include "reuse/answer_cache.h"

namespace okibi::decision {

struct LabelLogits {
  std::vector<float> labels;  // of the prompt's last position, in label order
  double outside_mass = -1;
  bool was_kept = false;
};

struct RunOptions {
  bool want_outside_mass = false;
  uint32_t max_wave = 0;                  // most forks at a time; 0: as many as fit
  std::string scope;                      // what is kept for others of it
  reuse::AnswerCache* answers = nullptr;  // null: every prompt is run
  const std::atomic<bool>* cancel = nullptr;
};

struct RunResult {
  std::vector<LabelLogits> outputs;  // one per prompt
  size_t n_known_prefix = 0;         // tokens of the prefix that were there
  size_t n_kept_prefix = 0;          // tokens after them that are there now for others
  double prefix_ms = 0, suffix_ms = 0;
};

Result<RunResult> run_prompts(engine::Scheduler& scheduler, const Prompts& prompts,
                              const RunOptions& options);

}  // namespace okibi::decision
