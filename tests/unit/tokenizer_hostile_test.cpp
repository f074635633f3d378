// Vocabularies that are damaged or made to hurt: an error in words or a working tokenizer, never a
// crash.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "unit/vocabulary_from_json.h"

namespace okibi::tokenizer {
namespace {

using testing::add_merge;
using testing::add_token;
using testing::byte_vocabulary;
using testing::create_or_fail;
using testing::encode_or_fail;

VocabularyData good() {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "a", "b");
  return data;
}

TEST(TokenizerHostile, EachDefectIsRefusedInWords) {
  const struct {
    std::function<void(VocabularyData*)> damage;
    const char* expected;
  } kCases[] = {
      {[](auto* d) { d->model = "t5"; }, "\"t5\""},
      {[](auto* d) { d->model = ""; }, "tokenizer.ggml.model"},
      {[](auto* d) { d->pre = "no-such-rule"; }, "\"no-such-rule\""},
      {[](auto* d) { d->pre = "kimi-k2"; }, "merge list"},
      {[](auto* d) { d->pre = "gemma4"; }, "gemma4"},
      {[](auto* d) { d->tokens.clear(); }, "0 entries"},
      {[](auto* d) { d->types.pop_back(); }, "token_type has 256 entries for 257"},
      {[](auto* d) { d->scores = {1.0f}; }, "scores has 1 entries"},
      {[](auto* d) { d->merges.clear(); }, "merges is missing"},
      {[](auto* d) { d->tokens[3] = std::string(65536, 'x'); }, "token 3 is 65536 bytes"},
      {[](auto* d) { d->model = "llama"; }, "scores is missing"},
      {[](auto* d) {
         d->model = "llama";
         d->scores.assign(257, std::nanf(""));
       },
       "no number"},
      {[](auto* d) {
         d->types[7] = 6;
         d->tokens[7] = "<0x-1>";
       },
       "token 7 is a byte token with the text \"<0x-1>\""},
      {[](auto* d) {
         d->types[7] = 6;
         d->tokens[7] = "\n<0x7>";
       },
       "\\x0A"},
  };
  for (const auto& c : kCases) {
    VocabularyData data = good();
    c.damage(&data);
    const auto result = Tokenizer::create(std::move(data));
    ASSERT_FALSE(result.ok()) << c.expected;
    EXPECT_NE(result.status().message().find(c.expected), std::string::npos)
        << result.status().message();
  }
}

TEST(TokenizerHostile, OddThingsAreWarnedAboutAndWork) {
  VocabularyData data = good();
  data.pre = "";
  data.bos = 1'000'000'000'000;
  data.eos = 257;
  data.add_bos = 1;
  data.types[5] = -77;
  data.types[6] = 2'000'000'000;
  add_token(&data, "b", TokenType::kNormal);  // the text of 'b' again; also makes 257 an id
  add_token(&data, "", TokenType::kControl);
  add_token(&data, std::string("a\0b", 3), TokenType::kUserDefined);
  add_token(&data, std::string(600, 'z'), TokenType::kControl);
  add_token(&data, "\xFF\xFE", TokenType::kNormal);
  data.merges.push_back("nonsense");
  const auto tokenizer = create_or_fail(data);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->bos(), kNoToken);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(encode_or_fail(*tokenizer, "b"), (std::vector<TokenId>{'b'}));
  EXPECT_EQ(encode_or_fail(*tokenizer, std::string("a\0b", 3)), (std::vector<TokenId>{259}));
  EXPECT_EQ(encode_or_fail(*tokenizer, std::string(600, 'z'), {.parse_special = true}).size(),
            600u);
  std::string all;
  for (const std::string& warning : tokenizer->warnings()) all += warning + "\n";
  for (const char* expected : {"pre is missing", "bos_token_id is 1000000000000", "BOS",
                               "1 tokens repeat", "1 of 2 merges", "longer than 512"}) {
    EXPECT_NE(all.find(expected), std::string::npos) << expected << " in " << all;
  }
}

TEST(TokenizerHostile, SpecialTokensNeverCutACharacterInHalf) {
  VocabularyData data = good();
  data.pre = "qwen35";
  add_token(&data, "\xC3", TokenType::kUserDefined);
  add_token(&data, "\xA9", TokenType::kUserDefined);
  add_token(&data, "e\xCC", TokenType::kControl);
  const auto tokenizer = create_or_fail(data);
  for (const std::string text : {"\xC3\xA9", "e\xCC\x81", "x\xCC\x81\xC3\xA9"}) {
    const std::vector<TokenId> ids = encode_or_fail(*tokenizer, text, {.parse_special = true});
    for (TokenId id : ids) EXPECT_LT(id, 256);
    EXPECT_EQ(tokenizer->decode(ids), normalize_nfc(text));
  }
}

TEST(TokenizerHostile, LongerListsThanTokensAreTolerated) {
  VocabularyData data = good();
  data.types.resize(1000, 3);
  data.scores.assign(1000, 0.0f);
  EXPECT_EQ(encode_or_fail(*create_or_fail(data), "ab"), (std::vector<TokenId>{256}));
}

TEST(TokenizerHostile, InfiniteScoresAndEqualOnesWork) {
  VocabularyData data;
  data.model = "llama";
  data.add_bos = 0;
  data.add_space_prefix = 0;
  for (const char* text : {"<unk>", "a", "aa", "aaa"}) add_token(&data, text, TokenType::kNormal);
  data.scores = {0, -INFINITY, INFINITY, std::numeric_limits<float>::denorm_min()};
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "aaaa"), (std::vector<TokenId>{2, 2}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "aab"), (std::vector<TokenId>{2, 0}));
}

TEST(TokenizerHostile, ChatTemplatesMayBeAnyBytes) {
  VocabularyData data = good();
  data.chat_template = std::string("\0\xFF{{", 4);
  EXPECT_EQ(create_or_fail(data)->chat_template().size(), 4u);
}

}  // namespace
}  // namespace okibi::tokenizer
