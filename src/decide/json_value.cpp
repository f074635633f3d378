#include "decide/json_value.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace okibi::decision {

namespace {

using Kind = JsonValue::Kind;

// Builds the tree from the library's events. `false` ends the reading; `error_` says why.
class TreeBuilder {
 public:
  using Json = nlohmann::json;

  explicit TreeBuilder(size_t max_depth) : max_depth_(max_depth) {}

  bool null() { return add({.kind = Kind::kNull}); }
  bool boolean(bool value) { return add({.kind = Kind::kBool, .text = value ? "true" : "false"}); }
  bool number_integer(Json::number_integer_t value) {
    return add({.kind = Kind::kNumber, .text = fmt::format("{}", value)});
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return add({.kind = Kind::kNumber, .text = fmt::format("{}", value)});
  }
  bool number_float(Json::number_float_t, const std::string& written) {
    return add({.kind = Kind::kNumber, .text = written});
  }
  bool string(std::string& value) { return add({.kind = Kind::kString, .text = std::move(value)}); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return open(Kind::kObject); }
  bool start_array(size_t) { return open(Kind::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Open& top = stack_.back();
    if (!top.seen.insert(name).second) {
      error_ = fmt::format("the key {} stands twice in the object at {}", quote_for_message(name),
                           where(stack_.size() - 1));
      return false;
    }
    top.value.keys.push_back(std::move(name));
    return true;
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) {
    std::string near;
    for (char c : last_token) {
      if (near.size() == 40) break;
      near += c >= 0x20 && c < 0x7f ? c : '?';
    }
    error_ = fmt::format("not valid JSON at byte {} of the text, at \"{}\"", position, near);
    return false;
  }

  Result<JsonValue> finish(bool complete) && {
    if (complete && error_.empty()) return std::move(root_);
    return bad_data(error_.empty() ? "not valid JSON" : std::move(error_));
  }

 private:
  struct Open {
    JsonValue value;
    std::unordered_set<std::string> seen;
  };

  bool open(Kind kind) {
    if (stack_.size() == max_depth_) {
      error_ = fmt::format("the JSON is nested more than {} levels deep", max_depth_);
      return false;
    }
    stack_.push_back({.value = {.kind = kind}});
    return true;
  }

  bool close() {
    JsonValue value = std::move(stack_.back().value);
    stack_.pop_back();
    return add(std::move(value));
  }

  bool add(JsonValue value) {
    if (++n_values_ > kMaxJsonValues) {
      error_ = fmt::format("the JSON has more than {} values", kMaxJsonValues);
      return false;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
    } else {
      stack_.back().value.items.push_back(std::move(value));
    }
    return true;
  }

  // The path of the container at `depth`, as the keys that lead to it.
  std::string where(size_t depth) const {
    if (depth == 0) return "the top";
    std::string path;
    for (size_t i = 0; i < depth; ++i) {
      const JsonValue& value = stack_[i].value;
      if (i > 0) path += " > ";
      path += value.is(Kind::kObject) ? quote_for_message(value.keys.back())
                                      : fmt::format("[{}]", value.items.size());
      if (path.size() > 200) return path + " ...";
    }
    return path;
  }

  size_t max_depth_;
  size_t n_values_ = 0;
  std::vector<Open> stack_;
  JsonValue root_;
  std::string error_;
};

void append_json(const JsonValue& value, std::string* out) {
  switch (value.kind) {
    case Kind::kNull:
      *out += "null";
      return;
    case Kind::kBool:
    case Kind::kNumber:
      *out += value.text;
      return;
    case Kind::kString:
      *out += quote_json(value.text);
      return;
    case Kind::kArray:
    case Kind::kObject: {
      const bool is_object = value.is(Kind::kObject);
      *out += is_object ? '{' : '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) *out += ", ";
        if (is_object) *out += quote_json(value.keys[i]) + ": ";
        append_json(value.items[i], out);
      }
      *out += is_object ? '}' : ']';
      return;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "nothing";
}

Result<JsonValue> parse_json(std::string_view text, size_t max_depth) {
  TreeBuilder builder(max_depth);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).finish(complete);
}

std::string to_json(const JsonValue& value) {
  std::string out;
  append_json(value, &out);
  return out;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string quote_for_message(std::string_view text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return quote_json(text);
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return quote_json(text.substr(0, end)) + "...";
}

}  // namespace okibi::decision
