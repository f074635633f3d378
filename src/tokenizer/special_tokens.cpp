// See special_tokens.h. A trie over bytes; what control tokens need beside their spelling is that
// all of it stands in one trusted range.
#include "tokenizer/special_tokens.h"

#include <fmt/core.h>

#include <algorithm>

namespace okibi::tokenizer {
namespace {

// Real special tokens have some twenty bytes. The limit bounds the work per position of a text.
constexpr size_t kMaxBytes = 512;

}  // namespace

bool Trust::covers(size_t begin, size_t end) const {
  if (everywhere) return true;
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), begin,
      [](size_t position, const TrustedRange& range) { return position < range.begin; });
  return after != ranges.begin() && end <= (after - 1)->end;
}

SpecialTokens::SpecialTokens(Vocabulary* vocabulary) : nodes_(1) {
  int64_t n_left_out = 0;
  for (TokenId id = 0; id < vocabulary->n_tokens(); ++id) {
    const TokenType type = vocabulary->type(id);
    const bool needs_trust = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!needs_trust && type != TokenType::kUserDefined) continue;
    const std::string_view text = vocabulary->text(id);
    if (text.empty()) continue;
    // One that is no UTF-8 could match within a character and leave halves of it to the encoders.
    if (text.size() > kMaxBytes || find_invalid_utf8(text) != std::string_view::npos) {
      ++n_left_out;
      continue;
    }
    insert(text, id, needs_trust);
  }
  if (n_left_out > 0) {
    vocabulary->warnings().push_back(
        fmt::format("{} special tokens are longer than {} bytes or no UTF-8: never matched in text",
                    n_left_out, kMaxBytes));
  }
}

int32_t SpecialTokens::child_of(int32_t node, char byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].sibling;
  }
  return child;
}

bool SpecialTokens::holds_pair(char a, char b) const {
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].byte == a && child_of(static_cast<int32_t>(i), b) >= 0) return true;
  }
  return false;
}

void SpecialTokens::insert(std::string_view text, TokenId id, bool needs_trust) {
  first_bytes_.set(static_cast<uint8_t>(text[0]));
  int32_t node = 0;
  for (char byte : text) {
    int32_t child = child_of(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({-1, nodes_[static_cast<size_t>(node)].child, kNoToken, byte, false});
      nodes_[static_cast<size_t>(node)].child = child;
    }
    node = child;
  }
  Node& last = nodes_[static_cast<size_t>(node)];
  if (last.id != kNoToken) return;  // a duplicate: the lowest id counts
  last.id = id;
  last.needs_trust = needs_trust;
}

SpecialTokens::Match SpecialTokens::next(std::string_view text, size_t from,
                                         const Trust& trust) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    Match best{begin, begin, kNoToken};
    int32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      node = child_of(node, text[i]);
      if (node < 0) break;
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.id == kNoToken) continue;
      if (here.needs_trust && !trust.covers(begin, i + 1)) continue;
      best.end = i + 1;
      best.id = here.id;
    }
    if (best.id != kNoToken) return best;
  }
  return {text.size(), text.size(), kNoToken};
}

}  // namespace okibi::tokenizer
