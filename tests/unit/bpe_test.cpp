// Byte-level BPE and the merge loop.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "unit/vocabulary_from_json.h"

namespace okibi::tokenizer {
namespace {

using testing::add_merge;
using testing::add_token;
using testing::byte_vocabulary;
using testing::create_or_fail;
using testing::encode_or_fail;

// The rule as it is defined, with no regard for time.
std::vector<uint32_t> merge_naively(const MergeTable& table, std::vector<uint32_t> symbols) {
  while (true) {
    size_t best = symbols.size();
    Merge best_merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = table.find(symbols[i], symbols[i + 1]);
      if (merge.rank < best_merge.rank) {
        best = i;
        best_merge = merge;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = best_merge.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergingByQueueAndByScanEqualsTheNaiveRule) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    // Few symbols and random results, so that ranks rise and fall and ties are frequent.
    const uint32_t n_symbols = 2 + static_cast<uint32_t>(rng() % 12);
    const bool ties = round % 2 == 0;
    MergeTable table;
    table.reserve(200);
    for (uint32_t k = 0; k < 5 * n_symbols && k < 200; ++k) {
      const auto left = static_cast<uint32_t>(rng() % n_symbols);
      const auto right = static_cast<uint32_t>(rng() % n_symbols);
      const auto rank = ties ? static_cast<uint32_t>(rng() % 4) : k;
      table.insert(left, right, {rank, static_cast<uint32_t>(rng() % n_symbols)});
    }
    Merger merger(table);
    for (size_t n : {0u, 1u, 2u, 3u, 17u, 96u, 97u, 98u, 500u}) {
      std::vector<uint32_t> symbols(n);
      for (uint32_t& symbol : symbols) symbol = static_cast<uint32_t>(rng() % n_symbols);
      const std::vector<uint32_t> expected = merge_naively(table, symbols);
      merger.run(&symbols);
      ASSERT_EQ(symbols, expected) << "round " << round << ", n " << n;
    }
  }
}

TEST(Bpe, TheFirstRankOfARepeatedMergeCounts) {
  VocabularyData data = byte_vocabulary();
  const TokenId ab = add_merge(&data, "a", "b");
  const TokenId bc = add_merge(&data, "b", "c");
  data.merges.push_back("a b");
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "abc"), (std::vector<TokenId>{ab, 'c'}));
  EXPECT_EQ(encode_or_fail(*tokenizer, "bc"), (std::vector<TokenId>{bc}));
}

TEST(Bpe, MergesAreSplitAtTheFirstSpaceBehindTheFirstCharacter) {
  VocabularyData data = byte_vocabulary();
  add_token(&data, "ab", TokenType::kNormal);
  // Neither a real merge nor a reason to fall over.
  for (const char* merge : {"", " ", "a", "a ", " a", "  a", "a  b", "a b c", "\xC4"}) {
    data.merges.push_back(merge);
  }
  data.merges.push_back("a b");
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "ab"), (std::vector<TokenId>{256}));
  ASSERT_EQ(tokenizer->warnings().size(), 1u);
  EXPECT_NE(tokenizer->warnings()[0].find("9 of 10 merges"), std::string::npos)
      << tokenizer->warnings()[0];
}

TEST(Bpe, IgnoreMergesEmitsAWholePieceThatMergesCannotReach) {
  for (const char* pre : {"llama-bpe", "qwen2"}) {
    VocabularyData data = byte_vocabulary(pre);
    const TokenId he = add_merge(&data, "h", "e");
    const TokenId word = add_token(&data, "hey", TokenType::kNormal);
    const auto tokenizer = create_or_fail(data);
    const std::vector<TokenId> expected =
        std::string(pre) == "qwen2" ? std::vector<TokenId>{he, 'y'} : std::vector<TokenId>{word};
    // Twice: the second time from what was learned.
    EXPECT_EQ(encode_or_fail(*tokenizer, "hey"), expected) << pre;
    EXPECT_EQ(encode_or_fail(*tokenizer, "hey"), expected) << pre;
  }
}

TEST(Bpe, ByteWithoutATokenMayStillBeMergedAway) {
  VocabularyData data = byte_vocabulary();
  data.tokens['q'] = "";
  const TokenId qu = add_merge(&data, "q", "u");
  const auto tokenizer = create_or_fail(data);
  EXPECT_EQ(encode_or_fail(*tokenizer, "qu"), (std::vector<TokenId>{qu}));
  const auto alone = tokenizer->encode("q", {});
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.status().message().find("0x71"), std::string::npos) << alone.status().message();
  data.unk = 0;
  EXPECT_EQ(encode_or_fail(*create_or_fail(data), "q"), (std::vector<TokenId>{0}));
}

TEST(Bpe, ControlAndUnusedTokensAreNeverProducedByMerging) {
  VocabularyData data = byte_vocabulary();
  add_merge(&data, "a", "b");
  add_merge(&data, "c", "d");
  data.types[256] = static_cast<int32_t>(TokenType::kControl);
  data.types[257] = static_cast<int32_t>(TokenType::kUnused);
  add_merge(&data, "e", "f");
  EXPECT_EQ(encode_or_fail(*create_or_fail(data), "abcdef"),
            (std::vector<TokenId>{'a', 'b', 'c', 'd', 258}));
}

// Processor seconds for encoding `n_bytes` of one letter, of which vocabularies hold long powers.
double seconds_for_run(const std::string& unit, size_t n_bytes) {
  VocabularyData data = byte_vocabulary("llama-bpe");
  std::string power = "a";
  while (power.size() < 64) {
    add_merge(&data, power, power);
    power += power;
  }
  const auto tokenizer = create_or_fail(data);
  std::string text;
  while (text.size() < n_bytes) text += unit;
  const std::clock_t begin = std::clock();
  const std::vector<TokenId> ids = encode_or_fail(*tokenizer, text);
  const std::clock_t end = std::clock();
  EXPECT_EQ(tokenizer->decode(ids), text);
  return static_cast<double>(end - begin) / CLOCKS_PER_SEC;
}

TEST(Bpe, LongRunsDoNotTakeQuadraticTime) {
  // Some 0.05 s, a second with sanitizers; the naive loop takes minutes.
  for (const char* unit : {"a", "b", "ab"}) EXPECT_LT(seconds_for_run(unit, 1 << 17), 10.0) << unit;
}

TEST(SlowBpe, AMegabyteOfOneLetterEncodesInAboutASecond) {
  for (const char* unit : {"a", "b", "ab"}) EXPECT_LT(seconds_for_run(unit, 1 << 20), 15.0) << unit;
}

}  // namespace
}  // namespace okibi::tokenizer
