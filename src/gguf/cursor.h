// Reads little-endian fields out of a byte range and never past its end: the one place where the
// reader touches bytes whose meaning is not checked yet.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace okibi::gguf {

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // False, and nothing moves, when fewer bytes are left.
  template <typename T>
  [[nodiscard]] bool read(T* out) {
    if (sizeof(T) > remaining()) return false;
    std::memcpy(out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool take(uint64_t n, std::span<const uint8_t>* out) {
    if (n > remaining()) return false;
    *out = bytes_.subspan(position_, n);
    position_ += n;
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

}  // namespace okibi::gguf
