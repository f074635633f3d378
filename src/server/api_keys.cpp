#include "server/api_keys.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace okibi::server {

namespace {

constexpr size_t kLeastKeyBytes = 8, kScopeDigits = 16;

std::string digest_of(std::string_view key) {
  return to_hex(sha256(bytes_of(key)));
}

bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kName = "bearer";
  if (scheme.size() != kName.size()) return false;
  for (size_t i = 0; i < kName.size(); ++i) {
    if ((scheme[i] | 0x20) != kName[i]) return false;
  }
  return true;
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const std::string_view key = line.substr(0, line.find(' '));
    bool is_plain = key.size() >= kLeastKeyBytes;
    for (char c : key) is_plain = is_plain && c > ' ' && c <= '~';
    if (!is_plain) {
      return bad_data(fmt::format(
          "line {} of the key file: a key is printable ASCII of {} characters and more, without "
          "blanks",
          number, kLeastKeyBytes));
    }
    const size_t blank = line.find(' ');
    keys.names_[digest_of(key)] =
        blank == std::string_view::npos ? "" : std::string(line.substr(blank + 1));
  }
  if (keys.empty()) return bad_data("the key file holds no key");
  return keys;
}

std::optional<std::string> ApiKeys::scope_of(std::string_view authorization) const {
  const size_t blank = authorization.find(' ');
  if (blank == std::string_view::npos || !is_bearer(authorization.substr(0, blank))) {
    return std::nullopt;
  }
  std::string_view key = authorization.substr(blank + 1);
  while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
  const std::string digest = digest_of(key);
  if (names_.find(digest) == names_.end()) return std::nullopt;
  return digest.substr(0, kScopeDigits);
}

}  // namespace okibi::server
