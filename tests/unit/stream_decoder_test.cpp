// Streaming: no half characters, no beginnings of stop strings, nothing lost.
#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "unit/vocabulary_from_json.h"

namespace okibi::tokenizer {
namespace {

using testing::byte_vocabulary;
using testing::create_or_fail;

std::shared_ptr<const Tokenizer> bytes_tokenizer() {
  VocabularyData data = byte_vocabulary();
  testing::add_merge(&data, "a", "b");
  testing::add_token(&data, "<|im_end|>", TokenType::kControl);
  return create_or_fail(data);
}

TEST(StreamDecoder, PiecesAreWholeCharactersAndJoinToTheWholeText) {
  const auto tokenizer = bytes_tokenizer();
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<TokenId> ids;
    const size_t n = rng() % 30;
    for (size_t i = 0; i < n; ++i) {
      // Mostly pieces of well-formed sequences, some plain noise.
      static const std::string kTexts[] = {"\xF0\x9F\x98\x80", "\xE4\xB8\xAD", "\xC3\xA9", "x"};
      const std::string& text = kTexts[rng() % 4];
      if (rng() % 3 == 0) {
        ids.push_back(static_cast<TokenId>(rng() % 256));
      } else {
        for (char c : text) ids.push_back(static_cast<uint8_t>(c));
      }
    }
    StreamDecoder decoder(*tokenizer, {});
    std::string joined;
    for (TokenId id : ids) {
      const std::string piece = decoder.push(id);
      ASSERT_EQ(find_invalid_utf8(piece), std::string_view::npos);
      joined += piece;
    }
    joined += decoder.finish();
    ASSERT_EQ(joined, tokenizer->decode(ids));
  }
}

TEST(StreamDecoder, AnIncompleteCharacterIsHeldAndBecomesAReplacementAtTheEnd) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, BytesThatCannotBecomeACharacterAreNotWaitedFor) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.push(0xE0), "");
  EXPECT_EQ(decoder.push(0x80), "\xEF\xBF\xBD\xEF\xBF\xBD");  // E0 wants A0..BF
}

TEST(StreamDecoder, ControlTokensShowNothing) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.push(257), "");
  EXPECT_EQ(decoder.push('x'), "x");
}

TEST(StreamDecoder, BeginningsOfStopStringsAreHeldUntilTheyAreDecided) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {"END", "\n\n"});
  EXPECT_EQ(decoder.push('x'), "x");
  EXPECT_EQ(decoder.push('E'), "");
  EXPECT_EQ(decoder.push('N'), "");
  EXPECT_EQ(decoder.push('E'), "EN");
  EXPECT_EQ(decoder.push('y'), "Ey");
  EXPECT_EQ(decoder.push('\n'), "");
  EXPECT_EQ(decoder.finish(), "\n");
  EXPECT_FALSE(decoder.stopped());
}

TEST(StreamDecoder, ACompletedStopStringEndsTheTextBeforeIt) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {"abc", ""});
  std::string text;
  for (TokenId id : {TokenId{'a'}, TokenId{'a'}, TokenId{256}, TokenId{'c'}, TokenId{'d'}}) {
    text += decoder.push(id);
  }
  EXPECT_TRUE(decoder.stopped());
  EXPECT_EQ(text + decoder.finish(), "aa");
}

TEST(StreamDecoder, RandomStopsCutWhereTheFirstOneIsComplete) {
  const auto tokenizer = bytes_tokenizer();
  std::mt19937 rng(9);
  for (int round = 0; round < 3000; ++round) {
    const auto random_text = [&](size_t n) {
      std::string text;
      while (n-- > 0) text += static_cast<char>('a' + rng() % 2);
      return text;
    };
    const std::string text = random_text(rng() % 30);
    const std::vector<std::string> stops = {random_text(1 + rng() % 6), random_text(1 + rng() % 6)};
    std::string expected = text;
    bool expect_stop = false;
    for (size_t n = 1; n <= text.size() && !expect_stop; ++n) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, n).ends_with(stop)) {
          longest = std::max(longest, stop.size());
        }
      }
      if (longest == 0) continue;
      expect_stop = true;
      expected = text.substr(0, n - longest);
    }
    StreamDecoder decoder(*tokenizer, stops);
    std::string found;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool pair = i + 1 < text.size() && text[i] == 'a' && text[i + 1] == 'b';
      found += decoder.push(pair ? 256 : text[i]);
      ASSERT_TRUE(expected.starts_with(found)) << found << " of " << expected;
      if (pair) ++i;
    }
    ASSERT_EQ(decoder.stopped(), expect_stop);
    ASSERT_EQ(found + decoder.finish(), expected);
  }
}

TEST(StreamDecoder, TheLeadingSpaceOfAWholeTextGoesOnce) {
  const auto tokenizer = bytes_tokenizer();
  StreamDecoder decoder(*tokenizer, {}, true);
  EXPECT_EQ(decoder.push(257), "");
  EXPECT_EQ(decoder.push(' '), "");
  EXPECT_EQ(decoder.push(' '), " ");
  EXPECT_EQ(decoder.push('x'), "x");
}

}  // namespace
}  // namespace okibi::tokenizer
