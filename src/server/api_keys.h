// The keys that clients may show, and the scope each one's caches belong to. Only digests are kept
// and compared, so how long a comparison takes tells nothing about a key.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "okibi/status.h"

namespace okibi::server {

class ApiKeys {
 public:
  // One key a line, with an optional name after a space; empty lines and lines that begin with '#'
  // are left out. Keys are printable ASCII of 8 bytes and more.
  static Result<ApiKeys> parse(std::string_view text);

  bool empty() const { return names_.empty(); }
  size_t size() const { return names_.size(); }
  // The scope of the bearer of this Authorization header; nothing when it holds no known key.
  std::optional<std::string> scope_of(std::string_view authorization) const;

 private:
  std::map<std::string, std::string> names_;  // digest of the key to its name
};

}  // namespace okibi::server
