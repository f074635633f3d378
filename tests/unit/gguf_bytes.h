// Builds GGUF files byte by byte, right or wrong, without the writer under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace okibi::gguf_bytes {

template <typename T>
std::string number(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string u32(uint32_t v) {
  return number(v);
}
inline std::string u64(uint64_t v) {
  return number(v);
}
inline std::string text(std::string_view s) {
  return u64(s.size()) + std::string(s);
}

// A key with its type number and the bytes of its value.
inline std::string key(std::string_view name, uint32_t type, const std::string& value) {
  return text(name) + u32(type) + value;
}
inline std::string key_u32(std::string_view name, uint32_t v) {
  return key(name, 4, u32(v));
}
inline std::string key_text(std::string_view name, std::string_view v) {
  return key(name, 8, text(v));
}
inline std::string key_array(std::string_view name, uint32_t element_type, uint64_t count,
                             const std::string& elements) {
  return key(name, 9, u32(element_type) + u64(count) + elements);
}

inline std::string tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                          uint64_t offset) {
  std::string bytes = text(name) + u32(static_cast<uint32_t>(ne.size()));
  for (const uint64_t n : ne) bytes += u64(n);
  return bytes + u32(type) + u64(offset);
}

struct RawFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> keys = {key_text("general.architecture", "x")};
  std::vector<std::string> tensors;
  std::optional<uint64_t> n_tensors, n_keys;  // what the header claims, if not the truth
  size_t alignment = 32;
  std::string data;

  std::vector<uint8_t> build() const {
    std::string bytes = magic + u32(version) + u64(n_tensors.value_or(tensors.size())) +
                        u64(n_keys.value_or(keys.size()));
    for (const std::string& k : keys) bytes += k;
    for (const std::string& t : tensors) bytes += t;
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    bytes += data;
    return {bytes.begin(), bytes.end()};
  }
};

// The smallest useful file: one key and the F32 tensor "a" = [1, -2.5].
inline RawFile smallest() {
  RawFile file;
  file.tensors = {tensor("a", {2}, 0, 0)};
  file.data = number(1.0f) + number(-2.5f) + std::string(24, '\0');
  return file;
}

}  // namespace okibi::gguf_bytes
