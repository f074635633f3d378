// The whole pipeline: golden ids, special tokens and injection, BOS, NFC, end tokens.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "unit/vocabulary_from_json.h"

namespace okibi::tokenizer {
namespace {

using testing::add_merge;
using testing::add_token;
using testing::byte_vocabulary;
using testing::create_or_fail;
using testing::encode_or_fail;

constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
constexpr EncodeOptions kParsed = {.add_special = false, .parse_special = true};

TEST(Tokenizer, GoldenTextsGiveTheReferenceIds) {
  size_t n_cases = 0;
  for (const auto& golden : testing::kGoldenVocabularies) {
    const std::string path = testing::golden_path(golden.folder) + "/tokenizer_golden.json";
    if (!std::ifstream(path).good()) continue;  // qwen35-tiny has none
    const auto tokenizer = create_or_fail(testing::golden_vocabulary(golden), 0);
    for (const auto& entry : testing::read_json(path)) {
      const std::string text = entry["text"].get<std::string>();
      EXPECT_EQ(encode_or_fail(*tokenizer, text, kParsed), entry["ids"].get<std::vector<TokenId>>())
          << golden.folder << ": " << text;
      EXPECT_EQ(tokenizer->decode(entry["ids"].get<std::vector<TokenId>>(), true), text);
      ++n_cases;
    }
  }
  EXPECT_EQ(n_cases, 31u);
}

TEST(Tokenizer, NoSpellingOfAControlTokenInDataBecomesOne) {
  for (const auto& golden : testing::kGoldenVocabularies) {
    const auto tokenizer = create_or_fail(testing::golden_vocabulary(golden));
    std::string all;
    size_t n_control = 0;
    for (TokenId id = 0; id < tokenizer->n_tokens(); ++id) {
      if (tokenizer->token_type(id) != TokenType::kControl) continue;
      ++n_control;
      const std::string text(tokenizer->token_text(id));
      all += text + "\n";
      for (const std::string& data : {text, "a" + text + "b", " " + text, text + text}) {
        for (TokenId found : encode_or_fail(*tokenizer, data, kPlain)) {
          EXPECT_EQ(tokenizer->token_type(found), TokenType::kNormal) << data;
        }
        EXPECT_EQ(tokenizer->decode(encode_or_fail(*tokenizer, data, kPlain)), data);
      }
      EXPECT_EQ(encode_or_fail(*tokenizer, text, kParsed), (std::vector<TokenId>{id}));
      // In a prompt: trusted before and behind, data between. All but one byte trusted is not
      // enough, on either side.
      const TrustedRange first{0, 1}, last{text.size() + 1, text.size() + 2};
      for (const std::vector<TrustedRange>& ranges :
           {std::vector<TrustedRange>{first, last},
            std::vector<TrustedRange>{{0, text.size()}, last},
            std::vector<TrustedRange>{first, {2, text.size() + 2}},
            std::vector<TrustedRange>{{0, 3}, {3, text.size() + 2}}}) {
        const auto ids = tokenizer->encode_prompt("x" + text + "y", ranges);
        ASSERT_TRUE(ids.ok());
        EXPECT_EQ(std::count(ids->begin(), ids->end(), id), id == tokenizer->bos() ? 1 : 0) << text;
      }
      const std::vector<TrustedRange> whole = {{1, text.size() + 1}};
      const auto ids = tokenizer->encode_prompt("x" + text + "y", whole);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(std::count(ids->begin(), ids->end(), id), id == tokenizer->bos() ? 2 : 1) << text;
    }
    EXPECT_GE(n_control, 5u) << golden.folder;
    for (TokenId found : encode_or_fail(*tokenizer, all, kPlain)) {
      EXPECT_EQ(tokenizer->token_type(found), TokenType::kNormal);
    }
  }
}

TEST(Tokenizer, TrustBordersDoNotCutPieces) {
  VocabularyData data = byte_vocabulary("qwen2");
  const TokenId two_lines = add_merge(&data, "\xC4\x8A", "\xC4\x8A");  // LF LF
  const TokenId start = add_token(&data, "<s>", TokenType::kControl);
  const auto tokenizer = create_or_fail(data);
  const std::vector<TrustedRange> trusted = {{0, 4}, {5, 8}};
  const auto ids = tokenizer->encode_prompt("<s>\n\n<s>", trusted);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{start, two_lines, start}));
}

TEST(Tokenizer, TrustedRangesMustLieInTheTextApart) {
  const auto tokenizer = create_or_fail([] {
    VocabularyData data = byte_vocabulary();
    add_merge(&data, "a", "b");
    return data;
  }());
  for (const std::vector<TrustedRange>& ranges :
       {std::vector<TrustedRange>{{0, 9}}, std::vector<TrustedRange>{{2, 1}},
        std::vector<TrustedRange>{{0, 2}, {1, 3}}}) {
    EXPECT_FALSE(tokenizer->encode_prompt("abcd", ranges).ok());
  }
  EXPECT_TRUE(tokenizer->encode_prompt("abcd", std::vector<TrustedRange>{{3, 4}, {0, 3}}).ok());
}

TEST(Tokenizer, UserDefinedTokensMatchEverywhereAndTheLongestWins) {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "p", "y");
  const TokenId python = add_token(&data, "python", TokenType::kUserDefined);
  const TokenId pythonic = add_token(&data, "pythonic", TokenType::kUserDefined);
  const TokenId end = add_token(&data, "python>", TokenType::kControl);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "apythonb", kPlain),
            (std::vector<TokenId>{'a', python, 'b'}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "pythonic", kPlain), (std::vector<TokenId>{pythonic}));
  // The longer control token counts where it is allowed, else the shorter user-defined one.
  EXPECT_EQ(encode_or_fail(*tokenizer, "python>", kPlain), (std::vector<TokenId>{python, '>'}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "python>", kParsed), (std::vector<TokenId>{end}));
}

TEST(Tokenizer, ThereIsExactlyOneBos) {
  VocabularyData data = byte_vocabulary("llama-bpe");
  add_merge(&data, "a", "b");
  const TokenId bos = add_token(&data, "<bos>", TokenType::kControl);
  data.bos = bos;
  const auto by_rule = create_or_fail(data);
  EXPECT_TRUE(by_rule->add_bos());
  EXPECT_EQ(encode_or_fail(*by_rule, "x"), (std::vector<TokenId>{bos, 'x'}));
  EXPECT_EQ(encode_or_fail(*by_rule, ""), (std::vector<TokenId>{bos}));
  EXPECT_EQ(encode_or_fail(*by_rule, "<bos>x", {.parse_special = true}),
            (std::vector<TokenId>{bos, 'x'}));
  EXPECT_EQ(encode_or_fail(*by_rule, "x", kPlain), (std::vector<TokenId>{'x'}));
  EXPECT_EQ(*by_rule->encode_prompt("x", {}), (std::vector<TokenId>{bos, 'x'}));
  EXPECT_EQ(*by_rule->encode_prompt("<bos>x", std::vector<TrustedRange>{{0, 5}}),
            (std::vector<TokenId>{bos, 'x'}));
  // Untrusted, it is six letters behind the real one.
  EXPECT_EQ(by_rule->encode_prompt("<bos>x", {})->size(), 7u);

  data.add_bos = 0;
  EXPECT_EQ(encode_or_fail(*create_or_fail(data), "x"), (std::vector<TokenId>{'x'}));
  data.add_bos = -1;
  data.pre = "qwen2";  // a bos id alone adds none
  EXPECT_EQ(encode_or_fail(*create_or_fail(data), "x"), (std::vector<TokenId>{'x'}));
}

TEST(Tokenizer, EosIsAddedToTextsThatWantItAndNeverToPrompts) {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "a", "b");
  data.eos = add_token(&data, "<eos>", TokenType::kControl);
  data.add_eos = 1;
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "x"), (std::vector<TokenId>{'x', 257}));
  EXPECT_EQ(*tokenizer->encode_prompt("x", {}), (std::vector<TokenId>{'x'}));
}

TEST(Tokenizer, NfcIsForQwenTextAndNotForSpecialTokens) {
  const std::string composed = "caf\xC3\xA9", decomposed = "cafe\xCC\x81";
  const std::string special = "<e\xCC\x81>";
  VocabularyData data = byte_vocabulary("qwen35");
  add_merge(&data, "a", "b");
  const TokenId id = add_token(&data, special, TokenType::kControl);
  const auto on = create_or_fail(data), off = create_or_fail(data, 0);
  EXPECT_EQ(encode_or_fail(*on, decomposed), encode_or_fail(*on, composed));
  EXPECT_NE(encode_or_fail(*off, decomposed), encode_or_fail(*off, composed));
  EXPECT_EQ(encode_or_fail(*on, "x" + special + decomposed, kParsed)[1], id);
  // A mark right behind a special token does not reach into it.
  EXPECT_EQ(encode_or_fail(*on, special + "\xCC\xB8", kParsed)[0], id);
  // Ranges count bytes of the text before it changes its length.
  const std::string prompt = decomposed + special + decomposed;
  const std::vector<TrustedRange> trusted = {
      {decomposed.size(), decomposed.size() + special.size()}};
  const auto ids = on->encode_prompt(prompt, trusted);
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->size(), 11u);
  EXPECT_EQ((*ids)[5], id);
  data.pre = "gpt-2";
  const auto gpt2 = create_or_fail(data), forced = create_or_fail(data, 1);
  EXPECT_NE(encode_or_fail(*gpt2, decomposed), encode_or_fail(*gpt2, composed));
  EXPECT_EQ(encode_or_fail(*forced, decomposed), encode_or_fail(*forced, composed));
}

TEST(Tokenizer, BrokenUtf8IsRefusedWithTheByteNamed) {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "a", "b");
  const auto result = create_or_fail(data)->encode("abc\xFFz", {});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("byte 3 (0xFF)"), std::string::npos);
}

TEST(Tokenizer, EndTokensAreThoseOfTheKeysAndOfKnownTexts) {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "a", "b");
  const TokenId eos = add_token(&data, "stop", TokenType::kNormal);
  const TokenId im_end = add_token(&data, "<|im_end|>", TokenType::kNormal);  // mis-typed
  const TokenId word = add_token(&data, "[EOS]", TokenType::kNormal);
  const TokenId slash = add_token(&data, "</s>", TokenType::kControl);
  const TokenId end = add_token(&data, "<|end|>", TokenType::kControl);
  data.eos = eos;
  auto tokenizer = create_or_fail(data);
  EXPECT_EQ(tokenizer->end_of_generation(), (std::vector<TokenId>{eos, im_end, slash, end}));
  EXPECT_TRUE(tokenizer->is_end_of_generation(im_end));
  EXPECT_FALSE(tokenizer->is_end_of_generation(word));
  EXPECT_EQ(tokenizer->token_type(im_end), TokenType::kControl);

  const TokenId returns = add_token(&data, "<|return|>", TokenType::kControl);
  const TokenId call = add_token(&data, "<|call|>", TokenType::kControl);
  const TokenId response = add_token(&data, "<|tool_response>", TokenType::kControl);
  tokenizer = create_or_fail(data);
  EXPECT_EQ(tokenizer->end_of_generation(),
            (std::vector<TokenId>{eos, im_end, returns, call, response}));
}

TEST(Tokenizer, BytesAndTextsOfTokens) {
  VocabularyData data = byte_vocabulary();
  const TokenId space_a = add_merge(&data, "\xC4\xA0", "a");
  const TokenId control = add_token(&data, "<c>", TokenType::kControl);
  const TokenId unused = add_token(&data, "[PAD]", TokenType::kUnused);
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(tokenizer->token_bytes(space_a), " a");
  EXPECT_EQ(tokenizer->token_text(space_a),
            "\xC4\xA0"
            "a");
  EXPECT_EQ(tokenizer->token_bytes(control), "");
  EXPECT_EQ(tokenizer->token_bytes(control, true), "<c>");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(unused + 1), "");
  EXPECT_EQ(tokenizer->find("<c>"), control);
  EXPECT_EQ(tokenizer->find("<d>"), kNoToken);
  EXPECT_EQ(tokenizer->find_by_bytes(" a"), space_a);
  EXPECT_EQ(tokenizer->find_by_bytes("<c>"), kNoToken);
  EXPECT_FALSE(tokenizer->is_sampleable(unused));
  EXPECT_TRUE(tokenizer->is_sampleable(control));
  EXPECT_FALSE(tokenizer->is_sampleable(unused + 1));
}

TEST(Tokenizer, EncodingFromManyThreadsGivesTheSameIds) {
  const auto tokenizer =
      create_or_fail(testing::golden_vocabulary(testing::kGoldenVocabularies[0]));
  std::string text;
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) text += "the position of a block, and again "[rng() % 35];
  const std::vector<TokenId> expected = encode_or_fail(
      *create_or_fail(testing::golden_vocabulary(testing::kGoldenVocabularies[0])), text);
  std::vector<std::thread> threads;
  std::vector<std::vector<TokenId>> found(4);
  for (auto& ids : found) {
    threads.emplace_back([&ids, &tokenizer, &text] { ids = *tokenizer->encode(text, {}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace okibi::tokenizer
