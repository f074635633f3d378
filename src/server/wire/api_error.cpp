#include "server/wire/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decide/json_value.h"

namespace okibi::server {

namespace {

using decision::quote_json;

// Path elements come from the client; a message quotes no more than it takes to find the place.
std::string path_of(const std::vector<std::string>& loc) {
  std::string path;
  for (size_t i = 1; i < loc.size(); ++i) {
    if (i > 1) path += '.';
    std::string element = decision::quote_for_message(loc[i]);
    if (element.front() == '"' && element.back() == '"') {
      element = element.substr(1, element.size() - 2);
    }
    path += element;
  }
  return path;
}

std::string issue_json(const Issue& issue) {
  std::string loc;
  for (const std::string& element : issue.loc) {
    if (!loc.empty()) loc += ", ";
    loc += quote_json(element);
  }
  return fmt::format("{{\"loc\": [{}], \"msg\": {}, \"type\": {}}}", loc, quote_json(issue.message),
                     quote_json(issue.type));
}

std::string_view openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

}  // namespace

ApiError make_error(int status, std::string code, std::string message) {
  return {.status = status, .code = std::move(code), .message = std::move(message)};
}

ApiError issue_error(std::vector<std::string> loc, std::string message, std::string type) {
  std::vector<Issue> issues(1);
  issues[0] = {std::move(loc), std::move(message), std::move(type)};
  return issues_error(std::move(issues));
}

ApiError issues_error(std::vector<Issue> issues) {
  ApiError error = make_error(422, "INVALID_REQUEST", "");
  const std::string path = path_of(issues.front().loc);
  error.message = path.empty() ? issues.front().message : path + ": " + issues.front().message;
  error.issues = std::move(issues);
  return error;
}

std::string error_body(const ApiError& error, Api api) {
  std::string details;
  for (const Issue& issue : error.issues) {
    if (!details.empty()) details += ", ";
    details += issue_json(issue);
  }
  if (api == Api::kDecisions) {
    const std::string param =
        error.issues.empty() ? "null" : quote_json(path_of(error.issues.front().loc));
    return fmt::format(
        "{{\"error\": {{\"message\": {}, \"type\": \"{}\", \"param\": {}, \"code\": {}}}}}\n",
        quote_json(error.message), openai_type(error.status), param, quote_json(error.code));
  }
  return fmt::format("{{\"error\": {}, \"code\": {}, \"detail\": {}}}\n", quote_json(error.message),
                     quote_json(error.code),
                     error.issues.empty() ? quote_json(error.message) : "[" + details + "]");
}

}  // namespace okibi::server
