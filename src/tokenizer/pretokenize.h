// Cuts text into the pieces that byte-level BPE merges within. Each vocabulary was trained with one
// split pattern (a list of regular expressions, applied one after another); here every pattern is a
// scanner written by hand, because a regular expression engine recurses on long runs and is slow.
// The patterns themselves stand in tests/unit/pretokenize_patterns.h, and the tests compare.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace okibi::tokenizer {

enum class Pattern : uint8_t {
  kGpt2,
  kLlama3,
  kQwen2,
  kQwen2NoContractions,
  kQwen35,
  kTekken,
  kGpt4o,
  kDigitGpt2,
  kFalcon,
  kDefault,
  kDsCoder,
  kDsLlm,
  kDsV3,
  kBloom,
  kViking,
  kBailing,
  kSeed,
  kMiniCpm5,
  kTinyAya,
  kExaMoe,
  kLines,
  kLaguna,
  kCount,
};

// Whether every pattern cuts where these two characters meet, however the text goes on, and then
// goes on as if the text began there. So between a line feed and a letter: no pattern's word may
// begin with a line feed, none looks back, and none looks further ahead than that letter.
constexpr bool cuts_pieces_between(char before, char after) {
  const char lower = static_cast<char>(after | 0x20);
  return before == '\n' && lower >= 'a' && lower <= 'z';
}

// Calls emit(context, piece) for each piece, in order; together the pieces are the text, which must
// be UTF-8. Time is linear in the text.
using EmitPiece = void (*)(void* context, std::string_view piece);
void pretokenize(Pattern pattern, std::string_view text, EmitPiece emit, void* context);

template <typename Emit>
void pretokenize(Pattern pattern, std::string_view text, Emit&& emit) {
  pretokenize(
      pattern, text,
      [](void* context, std::string_view piece) {
        (*static_cast<std::remove_reference_t<Emit>*>(context))(piece);
      },
      &emit);
}

}  // namespace okibi::tokenizer
