// The hand-written scanners against the patterns they stand for, run by PCRE2 over random text.
#include "tokenizer/pretokenize.h"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/unicode.h"
#include "unit/pretokenize_patterns.h"

namespace okibi::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

Pieces scan(Pattern pattern, std::string_view text) {
  Pieces pieces;
  pretokenize(pattern, text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

class Regex {
 public:
  explicit Regex(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr) << pattern << " at " << offset;
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  bool found_in(const std::string& text) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       PCRE2_NO_UTF_CHECK, match_.get(), nullptr) >= 0;
  }

  // Matches and what lies between them.
  void split(const std::string& piece, Pieces* out) const {
    size_t done = 0;
    while (done < piece.size()) {
      const int n = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()),
                                piece.size(), done, PCRE2_NO_UTF_CHECK, match_.get(), nullptr);
      if (n < 0) break;
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_.get());
      ASSERT_GT(span[1], span[0]);
      if (span[0] > done) out->push_back(piece.substr(done, span[0] - done));
      out->push_back(piece.substr(span[0], span[1] - span[0]));
      done = span[1];
    }
    if (done < piece.size()) out->push_back(piece.substr(done));
  }

 private:
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
};

Pieces split_by_regexes(const std::vector<Regex>& stages, const std::string& text) {
  Pieces pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Regex& stage : stages) {
    Pieces finer;
    for (const std::string& piece : pieces) stage.split(piece, &finer);
    pieces = std::move(finer);
  }
  return pieces;
}

// Random text: few characters, so that what the alternatives hang on meets often, and some of all
// scripts. Left out: U+180E, which PCRE2 calls a space and Unicode has not since version 6.3, and
// what is not assigned in PCRE2's Unicode version, which is one older than ours.
class RandomText {
 public:
  explicit RandomText(uint32_t seed) : rng_(seed) {
    for (const char* p : {" ",  " ",  " ", "\n", "\r", "\t", "'", "'", "s", "S", "t", "re",
                          "VE", "lL", "m", "d",  "a",  "B",  "c", "Z", "1", "2", "3", "45",
                          ".",  ",",  "!", "/",  "-",  "_",  "$", "`", "(", "|", "<", "+"}) {
      words_.push_back(p);
    }
    for (uint32_t cp :
         {0x17Fu,  0xC9u,   0xE9u,   0x1C5u,   0x2B0u,   0x5D0u,   0x4E2Du,  0x3042u, 0x30A2u,
          0xAC00u, 0x301u,  0x93Fu,  0x20DDu,  0xB2u,    0xBDu,    0x2163u,  0x661u,  0xFF11u,
          0xA0u,   0x3000u, 0x85u,   0x2028u,  0x200Bu,  0x200Du,  0x2026u,  0x3002u, 0xFF0Cu,
          0x964u,  0x2018u, 0x20ACu, 0x1F600u, 0x1F3FBu, 0x10400u, 0x1D7D8u, 0x7u,    0xADu,
          0xE001u, 0x212Au, 0x1E9Eu, 0xFEFFu,  0x0E01u,  0x0E31u}) {
      std::string text;
      append_utf8(&text, cp);
      words_.push_back(text);
    }
  }

  std::string next() {
    std::string text;
    const size_t n = rng_() % 40;
    const uint32_t wild = rng_() % 4 == 0 ? 3 : 20;
    // Half the texts draw from a handful of words only, which makes long runs.
    const size_t first = rng_() % words_.size();
    const size_t span = rng_() % 2 == 0 ? words_.size() : 1 + rng_() % 6;
    for (size_t i = 0; i < n; ++i) {
      if (rng_() % wild == 0) {
        append_utf8(&text, any_code_point());
      } else {
        text += words_[(first + rng_() % span) % words_.size()];
      }
    }
    return text;
  }

 private:
  uint32_t any_code_point() {
    while (true) {
      const uint32_t cp = rng_() % 2 == 0 ? rng_() % 0x3100 : rng_() % 0x20000;
      if (cp == 0x180E || (cp >= 0xD800 && cp < 0xE000)) continue;
      std::string text;
      append_utf8(&text, cp);
      if (assigned_.found_in(text)) return cp;
    }
  }

  std::mt19937 rng_;
  Regex assigned_{R"(\P{Cn})"};
  std::vector<std::string> words_;
};

std::string shown(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) {
    text += '[';
    for (char c : piece) {
      char hex[8];
      std::snprintf(hex, sizeof hex, c > 0x20 && c < 0x7F ? "%c" : "\\x%02X", c & 0xFF);
      text += hex;
    }
    text += ']';
  }
  return text;
}

void compare_all(size_t n_texts, uint32_t seed) {
  for (const testing::PatternSpec& spec : testing::pattern_specs()) {
    std::vector<Regex> stages;
    for (const std::string& stage : spec.stages) stages.emplace_back(stage);
    RandomText random(seed);
    for (size_t i = 0; i < n_texts; ++i) {
      const std::string text = random.next();
      const Pieces expected = split_by_regexes(stages, text);
      const Pieces found = scan(spec.pattern, text);
      if (found != expected) {
        ASSERT_EQ(shown(found), shown(expected)) << spec.name << ", text " << i;
      }
    }
  }
}

// What encode_branches (okibi/text.h) is built on: before a line feed and a letter, pieces are the
// same whatever follows, and behind it as if the text began with the letter.
TEST(Pretokenize, EveryPatternCutsBetweenALineFeedAndALetter) {
  RandomText random(17);
  std::mt19937 rng(3);
  for (int i = 0; i < 2000; ++i) {
    const std::string letter(1, static_cast<char>((rng() % 2 ? 'A' : 'a') + rng() % 26));
    ASSERT_TRUE(cuts_pieces_between('\n', letter[0]));
    const std::string head = random.next() + (rng() % 2 ? "\n\n" : "\n");
    const std::string tail = letter + random.next();
    for (size_t p = 0; p < static_cast<size_t>(Pattern::kCount); ++p) {
      const auto pattern = static_cast<Pattern>(p);
      Pieces expected = scan(pattern, head + letter);
      ASSERT_EQ(expected.back(), letter) << p;
      expected.pop_back();
      for (std::string& piece : scan(pattern, tail)) expected.push_back(std::move(piece));
      const Pieces found = scan(pattern, head + tail);
      if (found != expected) {
        ASSERT_EQ(shown(found), shown(expected)) << "pattern " << p;
      }
    }
  }
  EXPECT_FALSE(cuts_pieces_between(' ', 'a'));
  EXPECT_FALSE(cuts_pieces_between('\n', ' '));
  EXPECT_FALSE(cuts_pieces_between('\n', '1'));
}

TEST(Pretokenize, EveryPatternHasARegularExpression) {
  EXPECT_EQ(testing::pattern_specs().size(), static_cast<size_t>(Pattern::kCount));
}

TEST(Pretokenize, CharacterClassesAgreeWithPcre2OnEveryCodePointItKnows) {
  const struct {
    uint16_t bit;
    const char* pattern;
  } kClasses[] = {
      {kClsLetter, R"(\p{L})"},
      {kClsNumber, R"(\p{N})"},
      {kClsMark, R"(\p{M})"},
      {kClsPunct, R"(\p{P})"},
      {kClsSymbol, R"(\p{S})"},
      {kClsSpace, R"(\s)"},
      {kClsDigit, R"(\d)"},
      {kClsUpper, R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"},
      {kClsLower, R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"},
      {kClsCased, testing::kCasedSet},
  };
  const Regex assigned(R"(\P{Cn})");
  std::vector<std::string> texts;
  std::vector<uint32_t> code_points;
  for (uint32_t cp = 0; cp < 0x110000; ++cp) {
    if (cp == 0x180E || (cp >= 0xD800 && cp < 0xE000) || (cp >= 0xF0100 && cp < 0x10FFFE)) continue;
    std::string text;
    append_utf8(&text, cp);
    if (!assigned.found_in(text)) continue;
    texts.push_back(text);
    code_points.push_back(cp);
  }
  EXPECT_GT(texts.size(), 140000u);
  for (const auto& cls : kClasses) {
    const Regex regex(cls.pattern);
    for (size_t i = 0; i < texts.size(); ++i) {
      const bool found = (CharTable::get()[code_points[i]] & cls.bit) != 0;
      ASSERT_EQ(found, regex.found_in(texts[i])) << cls.pattern << " at " << code_points[i];
    }
  }
}

TEST(Pretokenize, ScannersCutThreeThousandRandomTextsAsThePatternsDo) {
  compare_all(3000, 1);
}

TEST(SlowPretokenize, ScannersCutFortyThousandRandomTextsAsThePatternsDo) {
  compare_all(40000, 2);
}

TEST(Pretokenize, ContractionsFoldLongSInTheCaseInsensitivePatternsOnly) {
  EXPECT_EQ(scan(Pattern::kQwen2, "it'\xC5\xBF"), (Pieces{"it", "'\xC5\xBF"}));
  EXPECT_EQ(scan(Pattern::kGpt2, "it'Sx"), (Pieces{"it", "'", "Sx"}));
}

TEST(Pretokenize, MarksBelongToWordsInQwen35AndNotInQwen2) {
  const std::string text = "e\xCC\x81t";  // e, combining acute, t
  EXPECT_EQ(scan(Pattern::kQwen35, text), (Pieces{text}));
  EXPECT_EQ(scan(Pattern::kQwen2, text), (Pieces{"e", "\xCC\x81t"}));
}

TEST(Pretokenize, CaseBordersAreUnicodeOnes) {
  EXPECT_EQ(scan(Pattern::kTekken,
                 "Case\xC3\x89t\xC3\xA9\xC3\x89"
                 "COLE"),
            (Pieces{"Case", "\xC3\x89t\xC3\xA9",
                    "\xC3\x89"
                    "COLE"}));
}

TEST(Pretokenize, DigitsGoInThreesFromTheLeftOrFromTheRight) {
  EXPECT_EQ(scan(Pattern::kLlama3, "1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(scan(Pattern::kTinyAya, "1234567"), (Pieces{"1", "234", "567"}));
  EXPECT_EQ(scan(Pattern::kTinyAya, "1234x"), (Pieces{"123", "4", "x"}));
}

TEST(Pretokenize, EmptyTextHasNoPieces) {
  for (const testing::PatternSpec& spec : testing::pattern_specs()) {
    EXPECT_TRUE(scan(spec.pattern, "").empty()) << spec.name;
  }
}

TEST(Pretokenize, LongRunsTakeLinearTime) {
  std::vector<std::string> texts;
  for (const char* unit : {"a", "A", " ", "\n", "1", ".", "'", "\xE4\xB8\xAD", "\xCC\x81", " \n",
                           " a", "'s", "\x01", "a\xCC\x81", "\xE3\x80\x80", "1_"}) {
    std::string text;
    while (text.size() < 1 << 15) text += unit;
    texts.push_back(text);
    texts.push_back(text + "x");
  }
  for (const testing::PatternSpec& spec : testing::pattern_specs()) {
    for (const std::string& text : texts) {
      size_t n = 0;
      const std::clock_t begin = std::clock();
      pretokenize(spec.pattern, text, [&](std::string_view piece) { n += piece.size(); });
      const std::clock_t end = std::clock();
      ASSERT_EQ(n, text.size());
      // A third of a millisecond, more with sanitizers. Quadratic: half a thousand million steps.
      EXPECT_LT(static_cast<double>(end - begin) / CLOCKS_PER_SEC, 0.4)
          << spec.name << " on a run of " << text.substr(0, 4);
    }
  }
}

}  // namespace
}  // namespace okibi::tokenizer
