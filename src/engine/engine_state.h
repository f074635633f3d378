// What an Engine is made of. Private to src/engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "engine/vision.h"
#include "gguf/reader.h"
#include "okibi/engine.h"
#include "reuse/answer_cache.h"

namespace okibi {

struct Engine::State {
  EngineOptions options;
  ModelInfo info;
  MemoryPlan memory;
  std::string identity;
  int n_threads = 1;
  std::vector<std::string> weight_lines;
  std::unique_ptr<Text> text;
  VisionInfo vision_info;
  std::optional<gguf::File> model_file;  // tables that stay in the file are read by the backend
  std::unique_ptr<engine::Scheduler> scheduler;
  std::unique_ptr<engine::Vision> vision;  // null without a vision file
  std::unique_ptr<reuse::AnswerCache> answers;
};

namespace engine {

// Makes engines from their parts (open_engine).
struct EngineAccess {
  using State = Engine::State;
  static std::shared_ptr<Engine> make(std::unique_ptr<State> state) {
    return std::shared_ptr<Engine>(new Engine(std::move(state)));
  }
};

}  // namespace engine
}  // namespace okibi
