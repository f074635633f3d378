// The tokens of a vocabulary after every check: texts, types, bytes, special ids, lookups. Knows
// what tokens are, not how text is cut into them (bpe.h, spm.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"
#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer {

class Vocabulary {
 public:
  enum class Model { kBytePair, kSentencePiece };

  // Takes tokens, types, scores, special ids and flags; leaves merges, pre and template alone.
  // `add_bos_by_default` is what the split rule says for byte-pair vocabularies.
  static Result<Vocabulary> create(VocabularyData* data, bool add_bos_by_default);

  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < n_tokens(); }
  const std::string& text(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  float score(TokenId id) const { return scores_[static_cast<size_t>(id)]; }
  bool is_plain(TokenId id) const {
    return type(id) == TokenType::kNormal || type(id) == TokenType::kUndefined;
  }
  // What the token contributes to text output.
  std::string_view bytes(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(arena_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }

  TokenId find(std::string_view text) const {
    return by_text_.find(text, [this](TokenId id) -> std::string_view { return text_view(id); });
  }
  // Plain tokens only; the encoders look up nothing else.
  TokenId find_plain(std::string_view bytes) const {
    return by_bytes_.find(bytes, [this](TokenId id) { return this->bytes(id); });
  }
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }

  Model model() const { return model_; }
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId unk() const { return unk_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }
  const std::vector<TokenId>& end_of_generation() const { return end_of_generation_; }

  std::vector<std::string>& warnings() { return warnings_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string_view text_view(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }
  Status take_tokens(VocabularyData* data);
  Status build_bytes();
  Status append_token_bytes(TokenId id, bool* is_pure);
  void index_tokens(const std::vector<bool>& is_pure);
  void take_special_ids(const VocabularyData& data, bool add_bos_by_default);
  TokenId checked_id(int64_t id, const char* name);
  void collect_end_of_generation(const VocabularyData& data);

  Model model_ = Model::kBytePair;
  std::vector<std::string> tokens_;
  std::vector<TokenType> types_;
  std::vector<float> scores_;
  std::string arena_;  // the bytes of all tokens
  std::vector<uint64_t> offsets_;
  TokenIndex by_text_, by_bytes_;
  std::array<TokenId, 256> byte_tokens_{};
  TokenId bos_ = kNoToken, eos_ = kNoToken, unk_ = kNoToken;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  std::vector<TokenId> end_of_generation_;
  std::vector<std::string> warnings_;
};

}  // namespace okibi::tokenizer
