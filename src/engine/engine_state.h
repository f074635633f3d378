// What an Engine is made of. Private to src/engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "okibi/engine.h"

namespace okibi {

struct Engine::State {
  EngineOptions options;
  ModelInfo info;
  MemoryPlan memory;
  std::string identity;
  int n_threads = 1;
  std::vector<std::string> weight_lines;
  std::unique_ptr<Text> text;
  std::unique_ptr<engine::Scheduler> scheduler;
};

}  // namespace okibi
