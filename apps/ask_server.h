// `okibi ask --url`: the same questions, answered by a server.
#pragma once

#include <string>

#include "okibi/decision.h"
#include "okibi/status.h"

namespace okibi::apps {

struct ServerAnswers {
  DecisionResult result;  // without token counts per question
  std::string body;       // as it came
  std::string timing;     // the Server-Timing header
};

// `questions_json` is the body's member of that name; `request` has the same questions.
Result<ServerAnswers> ask_server(const std::string& url, const std::string& key,
                                 const DecisionRequest& request, const std::string& questions_json);

}  // namespace okibi::apps
