// The decider behind which an engine stands: pictures are encoded or found, requests become
// decisions, decisions become answers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "okibi/engine.h"
#include "server/decider.h"

namespace okibi::server {

struct EngineDeciderOptions {
  std::string model_name;                  // as answers have it
  int64_t model_file_time = 0;             // seconds since 1970, for the list of models
  std::optional<Calibration> calibration;  // applied unless a request declines
};

std::unique_ptr<Decider> make_engine_decider(std::shared_ptr<Engine> engine,
                                             EngineDeciderOptions options);

}  // namespace okibi::server
