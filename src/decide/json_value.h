// A JSON text as a tree that keeps what the decision API needs and common libraries lose: the order
// of keys, numbers as they were written, and the fact that a key came twice (an error here). Depth
// is capped while reading. Knows nothing of questions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"

namespace okibi::decision {

struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string text;               // a string's content; a number or boolean as written
  std::vector<std::string> keys;  // of an object, beside `items`
  std::vector<JsonValue> items;   // elements of an array, values of an object

  // The value of an object's key, or null when there is none (or this is no object).
  const JsonValue* find(std::string_view key) const;
  bool is(Kind k) const { return kind == k; }
};

// "null", "a boolean", "a number", "a string", "an array", "an object": for error messages.
std::string_view kind_name(JsonValue::Kind kind);

constexpr size_t kMaxJsonDepth = 64;
// A value of one digit costs a hundred bytes of tree, so their number is bounded too.
constexpr size_t kMaxJsonValues = 1'000'000;
Result<JsonValue> parse_json(std::string_view text, size_t max_depth = kMaxJsonDepth);

// One line, with ", " and ": " between things and characters beyond ASCII as they are.
std::string to_json(const JsonValue& value);
// `text` as a JSON string with its quotes.
std::string quote_json(std::string_view text);
// The same, cut to what fits into an error message.
std::string quote_for_message(std::string_view text);

}  // namespace okibi::decision
