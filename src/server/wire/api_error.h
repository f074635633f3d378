// Why a request was refused, and the body that says so in the forms of both APIs.
#pragma once

#include <string>
#include <vector>

#include "server/wire/request.h"

namespace okibi::server {

// One thing wrong with a body. `loc` begins with "body".
struct Issue {
  std::vector<std::string> loc;
  std::string message;
  std::string type;
};

struct ApiError {
  int status = 0;       // of HTTP; 0: no error
  std::string code;     // "INVALID_REQUEST", "NOT_FOUND", ...
  std::string message;  // a sentence
  std::vector<Issue> issues;
};

ApiError make_error(int status, std::string code, std::string message);
// 422 with one issue; the message is the path and the sentence.
ApiError issue_error(std::vector<std::string> loc, std::string message, std::string type);
// 422 from several; the first one gives the message.
ApiError issues_error(std::vector<Issue> issues);

// System One: {"error": text, "code", "detail"}; Decisions: {"error": {"message", "type", "param",
// "code"}}. Official clients of both find the text in either.
std::string error_body(const ApiError& error, Api api);

}  // namespace okibi::server
