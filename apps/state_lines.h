// Lines of JSONL that each hold a state, with pictures, for the commands that go through many:
//   "text"    or    {"state": ..., "images": ["FILE", ...], "id": ..., "questions": ..., "answers":
//   ...}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "okibi/decision.h"
#include "okibi/status.h"

namespace okibi::apps {

struct StateLine {
  std::string id;                     // as JSON; empty: none
  std::string state;                  // rendered
  std::vector<std::string> pictures;  // paths
  std::vector<Question> questions;    // empty: none in the line
  // The right options by question, -1 where the line does not say; beside `questions`.
  std::vector<int64_t> right;
};

// Errors say what is wrong with the line. Paths of pictures are relative to `folder`. Right answers
// are read for the line's own questions, or for `questions` when it has none.
Result<StateLine> parse_state_line(std::string_view line, const std::string& folder,
                                   const std::vector<Question>& questions);

// The lines of a text, without empty ones at the end.
std::vector<std::string_view> split_lines(std::string_view text);

}  // namespace okibi::apps
