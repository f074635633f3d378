// Finds ids by byte strings: an open-addressing table of ids over texts that live elsewhere. Small
// (four bytes a slot) and immutable once filled.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace okibi::tokenizer {

inline uint64_t hash_bytes(std::string_view s) {
  constexpr uint64_t kMul = 0x9E3779B97F4A7C15ull;
  uint64_t h = s.size() * kMul;
  const char* p = s.data();
  size_t n = s.size();
  const auto mix = [&h](uint64_t word) {
    h = (h ^ word) * kMul;
    h ^= h >> 29;
  };
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    mix(word);
  }
  if (n > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, n);
    mix(word);
  }
  h *= kMul;
  return h ^ (h >> 32);
}

// `Texts` is asked texts(id) for the string of an id.
class TokenIndex {
 public:
  void reserve(size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    slots_.assign(slots, -1);
    mask_ = slots - 1;
  }

  // The id already stored under this text, or `id` if it was new.
  template <typename Texts>
  int32_t insert(std::string_view text, int32_t id, const Texts& texts) {
    for (size_t i = hash_bytes(text) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i] < 0) return slots_[i] = id;
      if (texts(slots_[i]) == text) return slots_[i];
    }
  }

  template <typename Texts>
  int32_t find(std::string_view text, const Texts& texts) const {
    if (slots_.empty()) return -1;
    for (size_t i = hash_bytes(text) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i] < 0) return -1;
      if (texts(slots_[i]) == text) return slots_[i];
    }
  }

 private:
  std::vector<int32_t> slots_;  // -1: free
  size_t mask_ = 0;
};

}  // namespace okibi::tokenizer
