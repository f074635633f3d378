// Small facts about metadata values: sizes and names of their types, and a printable form of bytes
// that came from a file.
#pragma once

#include <string>
#include <string_view>

#include "gguf/reader.h"

namespace okibi::gguf {

constexpr uint32_t kNumValueTypes = 13;

// Bytes of one element; 0 for strings and arrays, whose size varies.
uint32_t value_type_bytes(ValueType type);
// "u32", "array of string".
std::string describe_type(const Value& value);
// In quotes, control and non-ASCII bytes as \xNN, shortened when long. For messages.
std::string quoted(std::string_view bytes);

// Element `i` of an array of numbers, raw bits zero-extended; i < n_elements.
uint64_t raw_element(const Value& array, uint64_t i);

}  // namespace okibi::gguf
