// Reading of typed questions: the `questions` object of a System One body, with every rule of the
// format checked. The public door is parse_questions (okibi/decision.h); this header adds what the
// command line needs. How values become text: docs/decisions/0010-prompt-of-a-question.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "decide/json_value.h"
#include "okibi/decision.h"

namespace okibi::decision {

constexpr size_t kMaxOptions = 255;
constexpr size_t kMaxLevels = 10;

// A file of questions: the questions object itself, or an object with a member "questions" as the
// API's bodies have, whose state is taken along.
struct QuestionFile {
  std::vector<Question> questions;
  std::string json;  // of the questions object
  std::optional<std::string> state;
};
Result<QuestionFile> parse_question_file(std::string_view json);

// Strings as they are, null and empty containers as nothing, everything else as one line of JSON.
std::string text_of(const JsonValue& value);

// The question needs no model: it has one outcome.
inline bool is_settled(const Question& question) {
  return question.options.size() == 1;
}

}  // namespace okibi::decision
