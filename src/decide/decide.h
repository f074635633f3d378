// Running the prompts of a decision: the shared tokens once, then a fork per question, all suffixes
// together, as many at a time as the memory for forks allows. Works on token ids alone, so tests
// can drive it without a chat layout. Public door: decide (okibi/decision.h). Called from any
// thread; sequences are made, copied and destroyed on the engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "decide/prompt.h"
#include "engine/scheduler.h"
#include "okibi/status.h"

namespace okibi::decision {

struct LabelLogits {
  std::vector<float> labels;  // of the prompt's last position, in label order
  double outside_mass = -1;
};

struct RunOptions {
  bool want_outside_mass = false;
  uint32_t max_wave = 0;  // most forks at a time; 0: as many as fit
  const std::atomic<bool>* cancel = nullptr;
};

struct RunResult {
  std::vector<LabelLogits> outputs;  // one per prompt; empty for empty prompts
  double prefix_ms = 0, suffix_ms = 0;
};

// labels[i] belongs to prompts.tokens[i].
Result<RunResult> run_prompts(engine::Scheduler& scheduler, const Prompts& prompts,
                              std::span<const std::vector<TokenId>> labels,
                              const RunOptions& options);

}  // namespace okibi::decision
