// See spm.h. A symbol is a token's id, or n_tokens + code point for a character without a token.
#include "tokenizer/spm.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "tokenizer/unicode.h"

namespace okibi::tokenizer {
namespace {

// Hashes of all prefixes of a text, from which that of any substring follows in constant time:
// halves of a token are looked up without reading them again, or long tokens would take quadratic
// time. A match is always compared; a collision only hides a token, so the first one wins.
class SubstringHash {
 public:
  void reset(std::string_view text) {
    prefix_.assign(1, 0);
    for (char c : text) prefix_.push_back(prefix_.back() * kBase + static_cast<uint8_t>(c) + 1);
    while (power_.size() < prefix_.size()) power_.push_back(power_.back() * kBase);
  }
  uint64_t of(size_t begin, size_t end) const {
    const uint64_t h = prefix_[end] - prefix_[begin] * power_[end - begin];
    return h ^ (end - begin);
  }

 private:
  static constexpr uint64_t kBase = 0x9E3779B97F4A7C15ull;
  std::vector<uint64_t> prefix_;
  std::vector<uint64_t> power_ = {1};
};

bool is_continuation(char c) {
  return (c & 0xC0) == 0x80;
}

// Tokens by descending score, equal scores sharing a rank.
std::vector<uint32_t> ranks_by_score(const Vocabulary& vocabulary) {
  std::vector<TokenId> order(static_cast<size_t>(vocabulary.n_tokens()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return vocabulary.score(a) > vocabulary.score(b); });
  std::vector<uint32_t> ranks(order.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && vocabulary.score(order[i]) != vocabulary.score(order[i - 1])) ++rank;
    ranks[static_cast<size_t>(order[i])] = rank;
  }
  return ranks;
}

struct FoundMerge {
  uint32_t left, right, rank, result;
};

}  // namespace

Result<SentencePieceModel> SentencePieceModel::create(const Vocabulary& vocabulary) {
  SentencePieceModel model(vocabulary);
  OKIBI_RETURN_IF_ERROR(model.build_merges());
  return model;
}

Status SentencePieceModel::build_merges() {
  const auto n = static_cast<uint32_t>(vocabulary_.n_tokens());
  SubstringHash hash;
  std::vector<TokenId> matchable;
  std::unordered_map<uint64_t, TokenId> by_hash;
  for (TokenId id = 0; id < vocabulary_.n_tokens(); ++id) {
    const std::string_view bytes = vocabulary_.bytes(id);
    if (!vocabulary_.is_plain(id) || vocabulary_.find_plain(bytes) != id) continue;
    if (find_invalid_utf8(bytes) != std::string_view::npos) continue;
    matchable.push_back(id);
    hash.reset(bytes);
    by_hash.emplace(hash.of(0, bytes.size()), id);
    const size_t word = std::min(bytes.find_first_not_of(' '), bytes.size());
    if (bytes.find(' ', word) != std::string_view::npos) words_are_separate_ = false;
  }

  const std::vector<uint32_t> ranks = ranks_by_score(vocabulary_);
  // Real vocabularies have two or three ways to split a token.
  const size_t limit = 64 * static_cast<size_t>(n) + (1u << 18);
  std::vector<FoundMerge> found;
  for (TokenId id : matchable) {
    const std::string_view bytes = vocabulary_.bytes(id);
    hash.reset(bytes);
    const auto symbol = [&](size_t begin, size_t end) -> int64_t {
      const auto it = by_hash.find(hash.of(begin, end));
      const std::string_view part = bytes.substr(begin, end - begin);
      if (it != by_hash.end() && vocabulary_.bytes(it->second) == part) return it->second;
      int n_bytes = 0;
      const uint32_t cp = decode_valid(part.data(), &n_bytes);
      return static_cast<size_t>(n_bytes) == part.size() ? static_cast<int64_t>(n) + cp : -1;
    };
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      if (is_continuation(bytes[cut])) continue;
      const int64_t left = symbol(0, cut);
      const int64_t right = left < 0 ? -1 : symbol(cut, bytes.size());
      if (right < 0) continue;
      if (found.size() >= limit) {
        return bad_data(fmt::format(
            "the {} tokens of the vocabulary can be put together in more than {} ways", n, limit));
      }
      found.push_back({static_cast<uint32_t>(left), static_cast<uint32_t>(right),
                       ranks[static_cast<size_t>(id)], static_cast<uint32_t>(id)});
    }
  }
  merges_.reserve(found.size());
  for (const FoundMerge& merge : found) {
    merges_.insert(merge.left, merge.right, {merge.rank, merge.result});
  }
  return ok_status();
}

Status SentencePieceModel::encode(std::string_view text, Scratch* scratch,
                                  std::vector<TokenId>* out) const {
  if (!words_are_separate_) return encode_word(text, scratch, out);
  while (!text.empty()) {
    const size_t word = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = std::min(text.find(' ', word), text.size());
    OKIBI_RETURN_IF_ERROR(encode_word(text.substr(0, end), scratch, out));
    text.remove_prefix(end);
  }
  return ok_status();
}

Status SentencePieceModel::encode_word(std::string_view word, Scratch* scratch,
                                       std::vector<TokenId>* out) const {
  const auto n = static_cast<uint32_t>(vocabulary_.n_tokens());
  std::vector<uint32_t>& symbols = scratch->symbols;
  symbols.clear();
  for (size_t i = 0; i < word.size();) {
    int n_bytes = 0;
    const uint32_t cp = decode_valid(word.data() + i, &n_bytes);
    const TokenId id = vocabulary_.find_plain(word.substr(i, static_cast<size_t>(n_bytes)));
    symbols.push_back(id == kNoToken ? n + cp : static_cast<uint32_t>(id));
    i += static_cast<size_t>(n_bytes);
  }
  scratch->merger.run(&symbols);
  for (uint32_t symbol : symbols) {
    if (symbol < n) {
      out->push_back(static_cast<TokenId>(symbol));
    } else {
      OKIBI_RETURN_IF_ERROR(spell(symbol - n, out));
    }
  }
  return ok_status();
}

Status SentencePieceModel::spell(uint32_t cp, std::vector<TokenId>* out) const {
  std::string bytes;
  append_utf8(&bytes, cp == ' ' ? kSentencePieceSpace : cp);
  for (char c : bytes) {
    TokenId id = vocabulary_.byte_token(static_cast<uint8_t>(c));
    if (id == kNoToken) id = vocabulary_.find_plain({&c, 1});
    if (id == kNoToken) id = vocabulary_.unk();
    if (id == kNoToken) {
      return bad_data(fmt::format(
          "the vocabulary has no token for the byte 0x{:02X}, and none for unknown text",
          c & 0xFF));
    }
    out->push_back(id);
  }
  return ok_status();
}

}  // namespace okibi::tokenizer
