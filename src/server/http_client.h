// A small HTTP/1.1 client for our own commands and tests: one request, one answer, http:// only.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "okibi/status.h"

namespace okibi::server {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct HttpCall {
  std::string method = "POST";
  std::string url;  // http://host[:port][/path]
  std::map<std::string, std::string> headers;
  std::string body;
  double timeout_seconds = 600;  // for the whole of it
};
Result<HttpReply> http_call(const HttpCall& call);

}  // namespace okibi::server
