// SentencePiece-style BPE (`llama`): symbols are characters, and of all adjacent pairs that join
// into a token the one whose token has the highest score is joined first. What is left without a
// token is spelled in byte tokens. Immutable after construction.
#pragma once

#include <string_view>
#include <vector>

#include "okibi/status.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocabulary.h"

namespace okibi::tokenizer {

class SentencePieceModel {
 public:
  // `vocabulary` must outlive the model. The error: a vocabulary built to exhaust memory.
  static Result<SentencePieceModel> create(const Vocabulary& vocabulary);

  struct Scratch {
    explicit Scratch(const SentencePieceModel& model) : merger(model.merges_) {}
    Merger merger;
    std::vector<uint32_t> symbols;
  };
  // `text`: one fragment between special tokens, with plain spaces.
  Status encode(std::string_view text, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  explicit SentencePieceModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  Status build_merges();
  Status encode_word(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;
  Status spell(uint32_t cp, std::vector<TokenId>* out) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  // No token holds a space behind another character, so that no merge reaches from one word into
  // the next and words can be encoded one by one.
  bool words_are_separate_ = true;
};

}  // namespace okibi::tokenizer
