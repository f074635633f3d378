// `okibi ask --url`: the same questions, answered by a server.
#pragma once

#include <string>
#include <vector>

#include "okibi/decision.h"
#include "okibi/status.h"

namespace okibi::apps {

// A picture file as the wire has it.
struct ServerPicture {
  std::string data_url;
  std::string digest;  // "sha256:" and the file's
};
Result<std::vector<ServerPicture>> read_pictures(const std::vector<std::string>& paths);

struct ServerAnswers {
  DecisionResult result;       // without token counts per question
  std::string body;            // as it came
  std::string timing;          // the Server-Timing header
  bool sent_pictures = false;  // their bytes, not only their digests
};

struct ServerCall {
  std::string url, key;
  std::string questions_json;  // the body's member of that name
  std::vector<ServerPicture> pictures;
};
// `request` has the questions of the call and the state. Pictures are named by their digests first;
// their bytes travel when the server does not take that.
Result<ServerAnswers> ask_server(const ServerCall& call, const DecisionRequest& request);

}  // namespace okibi::apps
