// Typed access to metadata. Integers may be stored in any width and are range-checked into what is
// asked for; a bool is not an integer and an integer is no float. A key that is missing or of the
// wrong type is an error that names it.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/f16.h"
#include "gguf/file_state.h"
#include "gguf/parse.h"
#include "gguf/reader.h"
#include "gguf/value.h"

namespace okibi::gguf {
namespace {

Status wrong_type(std::string_view key, const Value& value, std::string_view expected) {
  return bad_data(
      fmt::format("key \"{}\" is {}, expected {}", key, describe_type(value), expected));
}

// Sign-extended to 64 bits. False for types that are no integers. `negative` tells the two readings
// of the top bit apart.
bool decode_integer(ValueType type, uint64_t bits, uint64_t* out, bool* negative) {
  int64_t value;
  switch (type) {
    case ValueType::kU8:
    case ValueType::kU16:
    case ValueType::kU32:
    case ValueType::kU64:
      *out = bits;
      *negative = false;
      return true;
    case ValueType::kI8:
      value = static_cast<int8_t>(bits);
      break;
    case ValueType::kI16:
      value = static_cast<int16_t>(bits);
      break;
    case ValueType::kI32:
      value = static_cast<int32_t>(bits);
      break;
    case ValueType::kI64:
      value = static_cast<int64_t>(bits);
      break;
    default:
      return false;
  }
  *out = static_cast<uint64_t>(value);
  *negative = value < 0;
  return true;
}

bool decode_float(ValueType type, uint64_t bits, double* out) {
  if (type == ValueType::kF32) {
    *out = bits_to_float(static_cast<uint32_t>(bits));
    return true;
  }
  if (type != ValueType::kF64) return false;
  std::memcpy(out, &bits, sizeof *out);
  return true;
}

// Scalars look like arrays of one element to the array getters.
uint64_t element_count(const Value& value) {
  return value.type == ValueType::kArray ? value.n_elements : 1;
}
ValueType element_type(const Value& value) {
  return value.type == ValueType::kArray ? value.element_type : value.type;
}
uint64_t element_bits(const Value& value, uint64_t i) {
  return value.type == ValueType::kArray ? raw_element(value, i) : value.bits;
}

bool is_number(ValueType type) {
  return value_type_bytes(type) > 0;
}

Result<const Value*> required(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  if (value == nullptr) return not_found(fmt::format("key \"{}\" is missing", key));
  return value;
}

Result<int64_t> signed_element(std::string_view key, const Value& value, uint64_t i) {
  uint64_t bits;
  bool negative;
  if (!decode_integer(element_type(value), element_bits(value, i), &bits, &negative)) {
    return wrong_type(key, value, "integers");
  }
  if (!negative && bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return bad_data(fmt::format("key \"{}\": element {} is {}, beyond 2^63 - 1", key, i, bits));
  }
  return static_cast<int64_t>(bits);
}

}  // namespace

Result<uint64_t> integer_value(std::string_view key, const Value& value, uint64_t max) {
  uint64_t bits;
  bool negative;
  if (!decode_integer(value.type, value.bits, &bits, &negative)) {
    return wrong_type(key, value, "an integer");
  }
  if (negative) {
    return bad_data(
        fmt::format("key \"{}\" is {}, expected 0 to {}", key, static_cast<int64_t>(bits), max));
  }
  if (bits > max) {
    return bad_data(fmt::format("key \"{}\" is {}, expected 0 to {}", key, bits, max));
  }
  return bits;
}

Result<uint64_t> File::get_u64(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  return integer_value(key, value, std::numeric_limits<uint64_t>::max());
}

Result<uint32_t> File::get_u32(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  OKIBI_ASSIGN_OR_RETURN(const uint64_t n,
                         integer_value(key, value, std::numeric_limits<uint32_t>::max()));
  return static_cast<uint32_t>(n);
}

Result<double> File::get_f64(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  double number;
  if (!decode_float(value.type, value.bits, &number)) return wrong_type(key, value, "f32 or f64");
  if (!std::isfinite(number)) {
    return bad_data(fmt::format("key \"{}\" is {}, expected a finite number", key, number));
  }
  return number;
}

Result<float> File::get_f32(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const double number, get_f64(key));
  if (std::fabs(number) > std::numeric_limits<float>::max()) {
    return bad_data(fmt::format("key \"{}\" is {}, beyond the range of f32", key, number));
  }
  return static_cast<float>(number);
}

Result<bool> File::get_bool(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (value.type != ValueType::kBool) return wrong_type(key, value, "bool");
  return value.bits != 0;
}

Result<std::string_view> File::get_string(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (value.type != ValueType::kString) return wrong_type(key, value, "string");
  return value.text;
}

Result<std::vector<std::string_view>> File::get_strings(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (value.type != ValueType::kArray || value.element_type != ValueType::kString) {
    return wrong_type(key, value, "array of string");
  }
  return value.texts;
}

Result<std::vector<int64_t>> File::get_ints(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (!is_number(element_type(value))) return wrong_type(key, value, "integers");
  std::vector<int64_t> numbers;
  numbers.reserve(element_count(value));
  for (uint64_t i = 0; i < element_count(value); ++i) {
    OKIBI_ASSIGN_OR_RETURN(const int64_t number, signed_element(key, value, i));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<uint64_t>> File::get_u64s(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (!is_number(element_type(value))) return wrong_type(key, value, "integers");
  std::vector<uint64_t> numbers;
  numbers.reserve(element_count(value));
  for (uint64_t i = 0; i < element_count(value); ++i) {
    uint64_t bits;
    bool negative;
    if (!decode_integer(element_type(value), element_bits(value, i), &bits, &negative)) {
      return wrong_type(key, value, "integers");
    }
    if (negative) {
      return bad_data(fmt::format("key \"{}\": element {} is {}, expected 0 or more", key, i,
                                  static_cast<int64_t>(bits)));
    }
    numbers.push_back(bits);
  }
  return numbers;
}

Result<std::vector<float>> File::get_floats(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (!is_number(element_type(value))) return wrong_type(key, value, "floats");
  std::vector<float> numbers;
  numbers.reserve(element_count(value));
  for (uint64_t i = 0; i < element_count(value); ++i) {
    double number;
    if (!decode_float(element_type(value), element_bits(value, i), &number)) {
      // Some writers store scores as integers.
      if (value.type != ValueType::kArray) return wrong_type(key, value, "floats");
      OKIBI_ASSIGN_OR_RETURN(const int64_t whole, signed_element(key, value, i));
      number = static_cast<double>(whole);
    }
    if (!(std::fabs(number) <= std::numeric_limits<float>::max())) {
      return bad_data(
          fmt::format("key \"{}\": element {} is {}, expected a finite f32", key, i, number));
    }
    numbers.push_back(static_cast<float>(number));
  }
  return numbers;
}

Result<std::vector<bool>> File::get_bools(std::string_view key) const {
  OKIBI_ASSIGN_OR_RETURN(const Value* found, required(*this, key));
  const Value& value = *found;
  if (element_type(value) != ValueType::kBool) return wrong_type(key, value, "bools");
  std::vector<bool> flags;
  flags.reserve(element_count(value));
  for (uint64_t i = 0; i < element_count(value); ++i) flags.push_back(element_bits(value, i) != 0);
  return flags;
}

Result<uint32_t> File::get_u32_or(std::string_view key, uint32_t fallback) const {
  if (!has(key)) return fallback;
  return get_u32(key);
}

Result<float> File::get_f32_or(std::string_view key, float fallback) const {
  if (!has(key)) return fallback;
  return get_f32(key);
}

Result<bool> File::get_bool_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return get_bool(key);
}

Result<std::string_view> File::get_string_or(std::string_view key,
                                             std::string_view fallback) const {
  if (!has(key)) return fallback;
  return get_string(key);
}

}  // namespace okibi::gguf
