// Unicode as tokenizers need it: a class word per code point, UTF-8 reading and mending, NFC. The
// tables come from utf8proc (Unicode 15) and never change after their first use; every function
// here may run on many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace okibi::tokenizer {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr uint32_t kSentencePieceSpace = 0x2581;
constexpr std::string_view kSentencePieceSpaceUtf8 = "\xE2\x96\x81";

// Bits of a class word. Split patterns are written in terms of these.
enum CharClass : uint16_t {
  kClsLetter = 1 << 0,      // L
  kClsNumber = 1 << 1,      // N
  kClsMark = 1 << 2,        // M
  kClsPunct = 1 << 3,       // P
  kClsSymbol = 1 << 4,      // S
  kClsSpace = 1 << 5,       // White_Space
  kClsNewline = 1 << 6,     // CR, LF
  kClsUpper = 1 << 7,       // Lu Lt Lm Lo M
  kClsLower = 1 << 8,       // Ll Lm Lo M
  kClsDigit = 1 << 9,       // Nd
  kClsCased = 1 << 10,      // the letters of the deepseek-llm pattern
  kClsNfcActive = 1 << 11,  // may change, or change its neighbours, under NFC
  kClsEnd = 1 << 15,        // no character: the end of the text
};

// Two-stage table: high bits of the code point pick a block, low bits a word in it.
class CharTable {
 public:
  static const CharTable& get();

  uint16_t operator[](uint32_t cp) const {
    return words_[(static_cast<uint32_t>(index_[cp >> 8]) << 8) | (cp & 0xFF)];
  }

 private:
  CharTable();
  std::vector<uint16_t> index_;
  std::vector<uint16_t> words_;
};

// Reads one code point of text known to be UTF-8; `p` < end.
inline uint32_t decode_valid(const char* p, int* n_bytes) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  if (u[0] < 0x80) {
    *n_bytes = 1;
    return u[0];
  }
  if (u[0] < 0xE0) {
    *n_bytes = 2;
    return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
  }
  if (u[0] < 0xF0) {
    *n_bytes = 3;
    return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
  }
  *n_bytes = 4;
  return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

// One step over bytes that may be anything.
struct Utf8Step {
  enum Kind { kGood, kBad, kIncomplete } kind;
  int n_bytes;  // good: the sequence; bad: the maximal bad sequence; incomplete: what is there
};
Utf8Step next_utf8(const char* p, const char* end);

void append_utf8(std::string* out, uint32_t cp);

// NFC of well-formed UTF-8, in time linear in the text but for n log n over runs of marks.
bool needs_nfc(std::string_view text);
std::string normalize_nfc(std::string_view text);

}  // namespace okibi::tokenizer
