// Content parts of chat messages, tool outputs and instructions.
#include <fmt/format.h>

#include <utility>

#include "server/wire/read_request.h"

namespace okibi::server {

namespace {

using decision::JsonValue;
using Kind = JsonValue::Kind;

constexpr size_t kMaxJsonPartDepth = 32, kMaxJsonPartValues = 10'000;
constexpr size_t kMaxJsonPartBytes = 256 << 10;

std::vector<std::string> inside(std::vector<std::string> loc, std::string element) {
  loc.push_back(std::move(element));
  return loc;
}

bool fail(ApiError* error, std::vector<std::string> loc, std::string message, std::string type) {
  *error = issue_error(std::move(loc), std::move(message), std::move(type));
  return false;
}

struct Extent {
  size_t depth = 0, n_values = 0, n_separators = 0;
};

Extent extent_of(const JsonValue& value) {
  Extent all{.depth = 1, .n_values = 1};
  const size_t n = value.items.size();
  all.n_separators = value.keys.size() + (n > 0 ? n - 1 : 0);
  for (const JsonValue& item : value.items) {
    const Extent one = extent_of(item);
    all.depth = std::max(all.depth, one.depth + 1);
    all.n_values += one.n_values;
    all.n_separators += one.n_separators;
  }
  return all;
}

bool append_json_part(const JsonValue& part, const std::vector<std::string>& loc, ApiError* error,
                      std::string* out) {
  const JsonValue* data = part.find("data");
  bool fits = data != nullptr && (data->is(Kind::kObject) || data->is(Kind::kArray));
  if (fits && data->is(Kind::kArray)) {
    for (const JsonValue& item : data->items) fits = fits && item.is(Kind::kObject);
  }
  if (!fits) {
    return fail(error, inside(loc, "data"), "must be an object or an array of objects",
                "model_type");
  }
  const Extent extent = extent_of(*data);
  const std::string text = to_json(*data);
  if (extent.depth > kMaxJsonPartDepth || extent.n_values > kMaxJsonPartValues ||
      text.size() - extent.n_separators > kMaxJsonPartBytes) {
    return fail(error, inside(loc, "data"),
                fmt::format("may have {} levels, {} values and {} bytes", kMaxJsonPartDepth,
                            kMaxJsonPartValues, kMaxJsonPartBytes),
                "too_long");
  }
  *out += text;
  return true;
}

// The address in {"image_url": "..."} or {"image_url": {"url": "..."}}.
const JsonValue* image_source(const JsonValue& part) {
  const JsonValue* url = part.find("image_url");
  if (url != nullptr && url->is(Kind::kObject)) url = url->find("url");
  return url != nullptr && url->is(Kind::kString) ? url : nullptr;
}

}  // namespace

std::string_view role_title(std::string_view role) {
  if (role == "developer") return "Developer";
  if (role == "system") return "System";
  if (role == "user") return "User";
  if (role == "assistant") return "Assistant";
  if (role == "tool") return "Tool";
  return "";
}

bool PartsReader::read(const JsonValue& content, const std::vector<std::string>& loc,
                       std::string_view role, std::string* out) const {
  if (content.is(Kind::kString)) {
    *out += content.text;
    return true;
  }
  if (!content.is(Kind::kArray)) {
    return fail(error, loc, "must be a string or an array of parts", "model_type");
  }
  for (size_t i = 0; i < content.items.size(); ++i) {
    if (i > 0) *out += '\n';
    const std::vector<std::string> place = inside(loc, fmt::format("{}", i));
    if (!read_part(content.items[i], place, role, out)) return false;
  }
  return true;
}

bool PartsReader::read_part(const JsonValue& part, const std::vector<std::string>& loc,
                            std::string_view role, std::string* out) const {
  const JsonValue* type = part.find("type");
  if (type == nullptr || !type->is(Kind::kString)) {
    return fail(error, inside(loc, "type"), "a part is an object with a type", "missing");
  }
  const bool is_plain = role == "developer" || role == "system";
  const bool is_reply = role == "assistant";
  const std::string& name = type->text;
  if (is_reply ? name == "output_text" || name == "refusal" || name == "text"
               : name == "input_text" || name == "text") {
    const std::string key = name == "refusal" ? "refusal" : "text";
    const JsonValue* text = part.find(key);
    if (text == nullptr || !text->is(Kind::kString)) {
      return fail(error, inside(loc, key), "must be a string", "string_type");
    }
    *out += text->text;
    return read_breakpoint(part, loc, *out);
  }
  if (!is_plain && !is_reply && (name == "input_image" || name == "image_url")) {
    const JsonValue* file = part.find("file_id");
    if (file != nullptr && !file->is(Kind::kNull)) {
      *error = make_error(400, "UNSUPPORTED_FILE_ID",
                          "files are not kept here, so a file_id names nothing; send a data URL");
      return false;
    }
    const JsonValue* source = image_source(part);
    if (source == nullptr) {
      return fail(error, inside(loc, "image_url"), "must be a data URL", "string_type");
    }
    std::string where;
    for (size_t i = 1; i < loc.size(); ++i) where += (i > 1 ? "." : "") + loc[i];
    const auto image = images.add_source(where, source->text, /*bare_allowed=*/false, error);
    if (!image) return false;
    *out += picture_mark(*image);
    return read_breakpoint(part, loc, *out);
  }
  if (!is_plain && !is_reply && role != "tool" && name == "input_json") {
    return append_json_part(part, loc, error, out);
  }
  return fail(
      error, inside(loc, "type"),
      fmt::format("a part of the type {} is not known here", decision::quote_for_message(name)),
      "union_tag_invalid");
}

bool PartsReader::read_breakpoint(const JsonValue& part, const std::vector<std::string>& loc,
                                  const std::string& out) const {
  const JsonValue* breakpoint = part.find("prompt_cache_breakpoint");
  if (breakpoint == nullptr || breakpoint->is(Kind::kNull)) return true;
  const JsonValue* mode = breakpoint->find("mode");
  if (mode == nullptr || mode->text != "explicit") {
    return fail(error, inside(loc, "prompt_cache_breakpoint"), "must be {\"mode\": \"explicit\"}",
                "literal_error");
  }
  if (prefix_ends != nullptr) prefix_ends->push_back(out.size());
  return true;
}

}  // namespace okibi::server
