// `okibi ask --input STATES.jsonl --output ANSWERS.jsonl`: the same questions about many states.
#pragma once

#include <string>

#include "okibi/decision.h"
#include "okibi/engine.h"
#include "okibi/status.h"

namespace okibi::apps {

// One line of answers per line of states, in order: the API's body with "line" (from 0) and the
// line's "id". Goes on behind what a run before wrote; a last line without its end is written anew.
// Returns the exit code.
Result<int> ask_many(Engine& engine, const DecisionRequest& questions,
                     const std::string& model_name, const std::string& input_path,
                     const std::string& output_path);

}  // namespace okibi::apps
