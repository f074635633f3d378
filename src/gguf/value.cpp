// See value.h; also the names that error messages and `okibi inspect` print.
#include "gguf/value.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace okibi::gguf {

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return "u8";
    case ValueType::kI8:
      return "i8";
    case ValueType::kU16:
      return "u16";
    case ValueType::kI16:
      return "i16";
    case ValueType::kU32:
      return "u32";
    case ValueType::kI32:
      return "i32";
    case ValueType::kF32:
      return "f32";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    case ValueType::kArray:
      return "array";
    case ValueType::kU64:
      return "u64";
    case ValueType::kI64:
      return "i64";
    case ValueType::kF64:
      return "f64";
  }
  return "unknown";
}

uint32_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

std::string describe_type(const Value& value) {
  if (value.type != ValueType::kArray) return std::string(value_type_name(value.type));
  return fmt::format("array of {}", value_type_name(value.element_type));
}

std::string quoted(std::string_view bytes) {
  constexpr size_t kShown = 80;
  std::string text = "\"";
  for (size_t i = 0; i < bytes.size() && i < kShown; ++i) {
    const unsigned char c = static_cast<unsigned char>(bytes[i]);
    if (c >= 0x20 && c <= 0x7e && c != '"' && c != '\\') {
      text += static_cast<char>(c);
    } else {
      text += fmt::format("\\x{:02x}", c);
    }
  }
  text += '"';
  if (bytes.size() > kShown) text += fmt::format("... ({} bytes)", bytes.size());
  return text;
}

uint64_t raw_element(const Value& array, uint64_t i) {
  const uint64_t width = value_type_bytes(array.element_type);
  DCHECK(width > 0 && i < array.n_elements, "element %llu", static_cast<unsigned long long>(i));
  uint64_t bits = 0;
  std::memcpy(&bits, array.raw.data() + i * width, width);
  return bits;
}

std::string shape_text(const TensorInfo& info) {
  std::string text = "(";
  for (int i = 0; i < info.n_dims; ++i) text += fmt::format("{}{}", i ? ", " : "", info.ne[i]);
  return text + ")";
}

}  // namespace okibi::gguf
