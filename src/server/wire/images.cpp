#include "server/wire/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "server/wire/body_coding.h"

namespace okibi::server {

namespace {

using decision::JsonValue;

constexpr std::string_view kDigestPrefix = "sha256:";

std::string hex_digest(std::string_view bytes) {
  return to_hex(sha256(bytes_of(bytes)));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

ApiError refusal(std::string_view where, std::string_view what) {
  return make_error(400, "INVALID_IMAGE", fmt::format("{}: {}", where, what));
}

}  // namespace

bool looks_like_image_source(std::string_view text) {
  return text.starts_with("data:image/") || text.starts_with(kDigestPrefix);
}

std::optional<size_t> Images::add_bytes(std::string where, std::string bytes, ApiError* error) {
  if (list_.size() == kMaxImages) {
    *error = make_error(400, "TOO_MANY_IMAGES",
                        fmt::format("a request may have up to {} pictures", kMaxImages));
    return std::nullopt;
  }
  if (bytes.empty()) {
    *error = refusal(where, "the picture has no bytes");
    return std::nullopt;
  }
  std::string digest = hex_digest(bytes);
  list_.push_back(
      {.where = std::move(where), .bytes = std::move(bytes), .sha256 = std::move(digest)});
  return list_.size() - 1;
}

std::optional<size_t> Images::add_digest(std::string where, std::string_view digest,
                                         ApiError* error) {
  if (digest.starts_with(kDigestPrefix)) digest.remove_prefix(kDigestPrefix.size());
  const std::string hex = lower(digest);
  if (hex.size() != 64 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    *error = refusal(where, "sha256 is followed by 64 hexadecimal digits");
    return std::nullopt;
  }
  if (list_.size() == kMaxImages) return add_bytes(std::move(where), "x", error);  // says why
  list_.push_back({.where = std::move(where), .sha256 = hex, .is_reference = true});
  return list_.size() - 1;
}

std::optional<size_t> Images::add_source(std::string where, std::string_view source,
                                         bool bare_allowed, ApiError* error) {
  if (source.starts_with(kDigestPrefix)) return add_digest(std::move(where), source, error);
  if (source.starts_with("data:")) {
    const size_t comma = source.find(',');
    const std::string head = lower(source.substr(0, std::min<size_t>(comma, 100)));
    if (comma == std::string_view::npos || !head.starts_with("data:image/") ||
        !head.ends_with(";base64")) {
      *error = refusal(where, "a data URL of a picture begins \"data:image/...;base64,\"");
      return std::nullopt;
    }
    source.remove_prefix(comma + 1);
  } else if (source.starts_with("http:") || source.starts_with("https:")) {
    *error = refusal(where, "pictures are not fetched from addresses here; send a data URL");
    return std::nullopt;
  } else if (!bare_allowed) {
    *error = refusal(where, "a picture is a data URL (\"data:image/png;base64,...\") here");
    return std::nullopt;
  }
  Result<std::string> bytes = decode_base64(source);
  if (!bytes.ok()) {
    *error = refusal(where, bytes.status().message());
    return std::nullopt;
  }
  return add_bytes(std::move(where), std::move(bytes).value(), error);
}

void Images::name(std::string name, size_t image) {
  names_.push_back({.text = std::move(name), .image = image});
  longest_first_.push_back(names_.size() - 1);
  std::stable_sort(longest_first_.begin(), longest_first_.end(), [this](size_t a, size_t b) {
    return names_[a].text.size() > names_[b].text.size();
  });
}

std::string Images::marked(std::string_view text) {
  if (names_.empty()) return std::string(text);
  std::string first_bytes;
  for (const Name& name : names_) first_bytes += name.text.front();
  std::string out;
  while (!text.empty()) {
    const size_t at = std::min(text.find_first_of(first_bytes), text.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (text.empty()) break;
    const auto found = std::find_if(longest_first_.begin(), longest_first_.end(),
                                    [&](size_t i) { return text.starts_with(names_[i].text); });
    if (found == longest_first_.end()) {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    Name& name = names_[*found];
    name.mentioned = true;
    out += picture_mark(name.image);
    text.remove_prefix(name.text.size());
  }
  return out;
}

JsonValue Images::marked(const JsonValue& value) {
  JsonValue out;
  out.kind = value.kind;
  out.text = value.is(JsonValue::Kind::kString) ? marked(value.text) : value.text;
  for (const std::string& key : value.keys) out.keys.push_back(marked(key));
  for (const JsonValue& item : value.items) out.items.push_back(marked(item));
  return out;
}

std::optional<std::string> Images::unmentioned() const {
  for (const Name& name : names_) {
    if (!name.mentioned) return name.text;
  }
  return std::nullopt;
}

}  // namespace okibi::server
