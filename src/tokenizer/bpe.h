// Byte-level BPE: a piece's bytes become symbols, the merge list joins them. Immutable but for the
// memory of which tokens the merges reach, which is a cache with one right answer per token.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocabulary.h"

namespace okibi::tokenizer {

class BytePairModel {
 public:
  // `vocabulary` must outlive the model. Warnings are appended to it.
  BytePairModel(Vocabulary* vocabulary, const std::vector<std::string>& merges, bool ignore_merges);

  // Buffers of one encode call.
  struct Scratch {
    explicit Scratch(const BytePairModel& model) : merger(model.merges_) {}
    Merger merger;
    std::vector<uint32_t> symbols;
  };
  Status encode(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  // Whether merging the bytes of a token gives the token. Learned when first asked for; threads
  // that race learn the same.
  enum Reached : uint8_t { kNotYetKnown, kYes, kNo };

  void read_merges(Vocabulary* vocabulary, const std::vector<std::string>& merges);
  uint32_t symbol_of(std::string_view bytes) const;

  const Vocabulary& vocabulary_;
  bool ignore_merges_;
  // A byte without a token of its own still has a symbol, n_tokens + byte: it may be merged away.
  std::array<uint32_t, 256> byte_symbols_;
  MergeTable merges_;
  std::unique_ptr<std::atomic<uint8_t>[]> reached_;
};

}  // namespace okibi::tokenizer
