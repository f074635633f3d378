// Vocabularies for synthetic files: a byte-level BPE of the size and with the special tokens of the
// real one, so that text can be encoded, chats laid out and answers printed. The first 4,000 merges
// are learned from English, so that a prompt takes about as many tokens as with the real one; the
// other tokens are made up: two to four letters, with and without a space before them. Private to
// model/synth.
#pragma once

#include <cstdint>

#include "model/synth/plan.h"

namespace okibi::model::synth {

enum class VocabularyKind { kSmolLm2, kLfm2, kLfm25, kQwen35, kQwen38, kQwenTiny };

// Adds the tokenizer.* keys: tokens, types, merges, special ids, chat template.
void add_vocabulary_keys(SynthPlan& plan, VocabularyKind kind, uint64_t n_vocab);

// Ids that the n-gram embedding of Flash-Next names.
struct QwenTokens {
  uint32_t end_of_text, image;
};
QwenTokens qwen_tokens(uint64_t n_vocab, bool is_tiny);

}  // namespace okibi::model::synth
