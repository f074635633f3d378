// SentencePiece-style encoding: scores, spaces, byte fallback.
#include "tokenizer/spm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "unit/vocabulary_from_json.h"

namespace okibi::tokenizer {
namespace {

using testing::add_token;
using testing::create_or_fail;
using testing::encode_or_fail;

const std::string kMark = std::string(kSentencePieceSpaceUtf8);

// <unk> <s> </s>, the 256 byte tokens, then what the test adds.
VocabularyData sentence_piece_vocabulary() {
  VocabularyData data;
  data.model = "llama";
  add_token(&data, "<unk>", TokenType::kUnknown);
  add_token(&data, "<s>", TokenType::kControl);
  add_token(&data, "</s>", TokenType::kControl);
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    add_token(&data, text, TokenType::kByte);
  }
  data.scores.assign(data.tokens.size(), 0.0f);
  return data;
}

TokenId add_piece(VocabularyData* data, const std::string& text, float score) {
  const TokenId id = add_token(data, text, TokenType::kNormal);
  data->scores.push_back(score);
  return id;
}

constexpr EncodeOptions kBare = {.add_special = false, .parse_special = false};

TEST(Spm, TheHighestScoreIsJoinedFirstAndTheLeftmostOnATie) {
  VocabularyData data = sentence_piece_vocabulary();
  data.add_space_prefix = 0;
  const TokenId a = add_piece(&data, "a", -10);
  const TokenId b = add_piece(&data, "b", -10);
  const TokenId c = add_piece(&data, "c", -10);
  const TokenId ab = add_piece(&data, "ab", -3);
  const TokenId bc = add_piece(&data, "bc", -2);
  const TokenId aa = add_piece(&data, "aa", -4);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "abc", kBare), (std::vector<TokenId>{a, bc}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "ab", kBare), (std::vector<TokenId>{ab}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "aaa", kBare), (std::vector<TokenId>{aa, a}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "cb", kBare), (std::vector<TokenId>{c, b}));
}

TEST(Spm, SpacesBecomeMarksAndOneIsPutInFront) {
  VocabularyData data = sentence_piece_vocabulary();
  const TokenId mark = add_piece(&data, kMark, -1);
  const TokenId h = add_piece(&data, "h", -5);
  const TokenId mark_h = add_piece(&data, kMark + "h", -2);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "h  h"), (std::vector<TokenId>{1, mark_h, mark, mark_h}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "hh"), (std::vector<TokenId>{1, mark_h, h}));
  EXPECT_EQ(encode_or_fail(*tokenizer, ""), (std::vector<TokenId>{1}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "h" + kMark + "h"),
            (std::vector<TokenId>{1, mark_h, mark_h}));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, mark_h, mark, mark_h}), "h  h");
  // After a special token the text begins anew.
  EXPECT_EQ(encode_or_fail(*tokenizer, "h</s>h", {.parse_special = true}),
            (std::vector<TokenId>{1, mark_h, 2, mark_h}));
}

TEST(Spm, TextWithoutTokensIsSpelledInBytes) {
  VocabularyData data = sentence_piece_vocabulary();
  data.add_space_prefix = 0;
  add_piece(&data, "a", -1);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "a\xC3\xA9\n", kBare),
            (std::vector<TokenId>{259, 3 + 0xC3, 3 + 0xA9, 3 + 0x0A}));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{259, 3 + 0xC3, 3 + 0xA9, 3 + 0x0A}),
            "a\xC3\xA9\n");
}

TEST(Spm, ASpelledOutByteTokenIsOnlyLetters) {
  VocabularyData data = sentence_piece_vocabulary();
  data.add_space_prefix = 0;
  const auto with_types = create_or_fail(data);
  data.types.clear();  // an old file
  const auto without_types = create_or_fail(data);
  for (const auto& tokenizer : {with_types, without_types}) {
    const std::vector<TokenId> ids = encode_or_fail(*tokenizer, "<0x0A>", kBare);
    EXPECT_EQ(ids.size(), 6u);
    EXPECT_EQ(tokenizer->decode(ids), "<0x0A>");
  }
}

TEST(Spm, CharactersWithoutATokenOfTheirOwnCanBeJoinedIntoOne) {
  VocabularyData data = sentence_piece_vocabulary();
  data.add_space_prefix = 0;
  const TokenId xy = add_piece(&data, "xy", -1);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "xyx", kBare), (std::vector<TokenId>{xy, 3 + 'x'}));
}

// The rule as it is defined, by looking up the text of every pair again and again.
std::vector<std::string> encode_naively(const std::map<std::string, float>& scores,
                                        const std::string& text) {
  std::vector<std::string> symbols;
  for (char c : text) symbols.push_back(std::string(1, c));
  while (true) {
    size_t best = symbols.size();
    float best_score = -INFINITY;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = scores.find(symbols[i] + symbols[i + 1]);
      if (it != scores.end() && it->second > best_score) {
        best = i;
        best_score = it->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Spm, RandomVocabulariesEncodeAsTheNaiveRuleDoes) {
  std::mt19937 rng(11);
  for (int round = 0; round < 40; ++round) {
    VocabularyData data = sentence_piece_vocabulary();
    data.add_space_prefix = 0;
    std::map<std::string, float> scores;
    for (const char* letter : {"a", "b", "_"}) {
      scores[letter] = -100;
      add_piece(&data, letter[0] == '_' ? kMark : letter, -100);
    }
    for (int k = 0; k < 40; ++k) {
      std::string text;
      const size_t n = 2 + rng() % 4;
      for (size_t i = 0; i < n; ++i) text += "ab_"[rng() % 3];
      if (!scores.emplace(text, static_cast<float>(rng() % 8)).second) continue;
      std::string stored;
      for (char c : text) stored += c == '_' ? kMark : std::string(1, c);
      add_piece(&data, stored, scores[text]);
    }
    const auto tokenizer = create_or_fail(data);
    for (int k = 0; k < 10; ++k) {
      std::string text;
      const size_t n = rng() % 150;
      for (size_t i = 0; i < n; ++i) text += "ab_"[rng() % 3];
      std::string expected, found, input = text;
      for (const std::string& symbol : encode_naively(scores, text)) expected += symbol + "|";
      std::replace(input.begin(), input.end(), '_', ' ');
      for (TokenId id : encode_or_fail(*tokenizer, input, kBare)) {
        found += std::string(tokenizer->token_bytes(id)) + "|";
      }
      std::replace(found.begin(), found.end(), ' ', '_');
      ASSERT_EQ(found, expected) << "round " << round;
    }
  }
}

double seconds_for_run(char unit, size_t n_bytes) {
  VocabularyData data = sentence_piece_vocabulary();
  for (const std::string& piece : {std::string("a"), kMark}) {
    std::string text;
    for (int k = 0; k < 16; ++k) {
      text += piece;
      add_piece(&data, text, static_cast<float>(-k));
    }
  }
  const auto tokenizer = create_or_fail(data);
  const std::string text(n_bytes, unit);
  const std::clock_t begin = std::clock();
  const std::vector<TokenId> ids = encode_or_fail(*tokenizer, text);
  const std::clock_t end = std::clock();
  EXPECT_EQ(tokenizer->decode(ids), text);
  return static_cast<double>(end - begin) / CLOCKS_PER_SEC;
}

TEST(Spm, LongRunsDoNotTakeQuadraticTime) {
  for (char unit : {'a', ' ', 'x'}) EXPECT_LT(seconds_for_run(unit, 1 << 16), 10.0) << unit;
}

TEST(SlowSpm, AMegabyteOfOneCharacterEncodesInAboutASecond) {
  for (char unit : {'a', ' ', 'x'}) EXPECT_LT(seconds_for_run(unit, 1 << 20), 15.0) << unit;
}

TEST(Spm, AVocabularyOfOneLetterPowersIsRefusedInsteadOfFillingMemory) {
  VocabularyData data = sentence_piece_vocabulary();
  for (size_t n = 1; n <= 1000; ++n) add_piece(&data, std::string(n, 'a'), -static_cast<float>(n));
  const auto result = Tokenizer::create(data);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("ways"), std::string::npos);
}

}  // namespace
}  // namespace okibi::tokenizer
