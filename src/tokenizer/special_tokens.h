// Finds special and user-defined tokens in text: at each place the longest one that is allowed
// there. Immutable after construction.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace okibi::tokenizer {

// Where control tokens may match.
struct Trust {
  bool everywhere = false;
  std::span<const TrustedRange> ranges;  // sorted, apart from each other

  bool covers(size_t begin, size_t end) const;
};

class SpecialTokens {
 public:
  // Warnings are appended to the vocabulary.
  explicit SpecialTokens(Vocabulary* vocabulary);

  struct Match {
    size_t begin = 0, end = 0;
    TokenId id = kNoToken;  // kNoToken: none; begin = end = the end of the text
  };
  // The leftmost match at or after `from`.
  Match next(std::string_view text, size_t from, const Trust& trust) const;
  // Whether one of them has these two characters side by side.
  bool holds_pair(char a, char b) const;

 private:
  struct Node {
    int32_t child = -1;    // first child
    int32_t sibling = -1;  // next child of the same parent
    TokenId id = kNoToken;
    char byte = 0;
    bool needs_trust = false;
  };
  int32_t child_of(int32_t node, char byte) const;
  void insert(std::string_view text, TokenId id, bool needs_trust);

  std::vector<Node> nodes_;  // [0] is the root
  std::bitset<256> first_bytes_;
};

}  // namespace okibi::tokenizer
