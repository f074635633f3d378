// The byte alphabet of byte-level BPE: every byte has a printable code point that stands for it in
// the stored texts of tokens and merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/unicode.h"

namespace okibi::tokenizer {

class ByteAlphabet {
 public:
  constexpr ByteAlphabet() {
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool itself =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      code_point_[b] = static_cast<uint16_t>(itself ? b : next++);
    }
    for (auto& byte : byte_) byte = -1;
    for (uint32_t b = 0; b < 256; ++b) byte_[code_point_[b]] = static_cast<int16_t>(b);
  }

  uint32_t code_point(uint8_t byte) const { return code_point_[byte]; }
  // -1: no letter of the alphabet.
  int byte_of(uint32_t cp) const { return cp < kLetters ? byte_[cp] : -1; }

  // Appends the bytes that `text` stands for. What is no letter of the alphabet stands for its own
  // UTF-8; returns false if there was any of that.
  bool append_bytes(std::string_view text, std::string* out) const {
    bool pure = true;
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
      const Utf8Step step = next_utf8(p, end);
      int n = step.n_bytes;
      const int byte = step.kind == Utf8Step::kGood ? byte_of(decode_valid(p, &n)) : -1;
      if (byte >= 0) {
        out->push_back(static_cast<char>(byte));
      } else {
        out->append(p, static_cast<size_t>(step.n_bytes));
        pure = false;
      }
      p += step.n_bytes;
    }
    return pure;
  }

 private:
  static constexpr uint32_t kLetters = 0x100 + 68;
  std::array<uint16_t, 256> code_point_{};
  std::array<int16_t, kLetters> byte_{};
};

inline constexpr ByteAlphabet kByteAlphabet;

}  // namespace okibi::tokenizer
