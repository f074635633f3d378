// Turns a stream of tokens into a stream of text that never holds half a character and never shows
// the beginning of a stop string that is then completed. Concatenated pieces equal the whole text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer {

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. `strip_leading_space`: for vocabularies that put a space
  // before the whole text, when decoding from its beginning.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                bool strip_leading_space = false);

  // The text that is safe to show after this token; may be empty.
  std::string push(TokenId id);
  // True once a stop string has been completed; it and what follows it are dropped. Of several the
  // one that is complete first counts.
  bool stopped() const { return stopped_; }
  // Everything held back; an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  // A stop string and how much of it the text so far ends with (Knuth-Morris-Pratt).
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [n]: length of the longest border of the first n bytes
    size_t matched = 0;
  };
  std::string emit_ready(bool at_end);
  void accept(std::string_view text);

  const Tokenizer& tokenizer_;
  std::vector<Stop> stops_;
  std::string bytes_;  // not yet decoded: an incomplete character
  std::string held_;   // decoded, not yet shown: may begin a stop string
  bool stopped_ = false;
  bool strip_leading_space_;
};

}  // namespace okibi::tokenizer
