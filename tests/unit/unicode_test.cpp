// UTF-8 stepping and mending, and NFC against utf8proc's own (slower, partly quadratic) one.
#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>
#include <random>
#include <string>

#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer {
namespace {

std::string utf8(std::initializer_list<uint32_t> cps) {
  std::string text;
  for (uint32_t cp : cps) append_utf8(&text, cp);
  return text;
}

std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), &out,
                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  EXPECT_GE(n, 0);
  std::string result(reinterpret_cast<char*>(out), static_cast<size_t>(n));
  std::free(out);
  return result;
}

TEST(Unicode, NfcOfEveryCodePointEqualsTheReference) {
  for (uint32_t cp = 1; cp < 0x110000; ++cp) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(cp));
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS ||
        category == UTF8PROC_CATEGORY_CO) {
      continue;
    }
    const std::string text = utf8({'a', cp, 'b'});
    ASSERT_EQ(normalize_nfc(text), reference_nfc(text)) << cp;
    ASSERT_EQ(needs_nfc(text), (CharTable::get()[cp] & kClsNfcActive) != 0) << cp;
  }
}

TEST(Unicode, NfcOfRandomTextEqualsTheReference) {
  std::vector<uint32_t> active;
  for (uint32_t cp = 0x80; cp < 0x20000; ++cp) {
    if (CharTable::get()[cp] & kClsNfcActive) active.push_back(cp);
  }
  EXPECT_GT(active.size(), 1000u);
  const uint32_t bases[] = {'a',   'e',    'o',   ' ',  0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01,
                            0x3B1, 0x304B, 0x9C7, 0xE9, 0x1EA1, 0x212B, 0x4E2D, 0x1B06, 0x110B9};
  std::mt19937 rng(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    const size_t n = rng() % 12;
    for (size_t k = 0; k < n; ++k) {
      const uint32_t cp = rng() % 3 == 0   ? bases[rng() % std::size(bases)]
                          : rng() % 2 == 0 ? 0x300 + rng() % 0x50
                                           : active[rng() % active.size()];
      append_utf8(&text, cp);
    }
    const std::string found = normalize_nfc(text);
    ASSERT_EQ(found, reference_nfc(text)) << i;
    ASSERT_EQ(normalize_nfc(found), found) << i;
    if (!needs_nfc(text)) {
      ASSERT_EQ(found, text) << i;
    }
  }
}

TEST(Unicode, NfcOfALongRunOfMixedMarksIsNotQuadratic) {
  std::string text = "a";
  while (text.size() < 1 << 19) text += utf8({0x301, 0x323});
  const std::clock_t begin = std::clock();
  EXPECT_FALSE(normalize_nfc(text).empty());
  // Quadratic sorting would take half a minute.
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 8.0);
}

TEST(Unicode, FirstBadByteIsFound) {
  EXPECT_EQ(find_invalid_utf8("plain and \xC3\xA9"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10u);
  EXPECT_EQ(find_invalid_utf8("ab\xE4\xB8"), 2u);        // cut off
  EXPECT_EQ(find_invalid_utf8("ab\xC0\xAF"), 2u);        // overlong
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xF0\x9F\x98\x80"), std::string_view::npos);
}

TEST(Unicode, EachMaximalBadSequenceBecomesOneReplacement) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xFF"
                                 "b"),
            "a" + r + "b");
  EXPECT_EQ(replace_invalid_utf8("a\xE4\xB8"), "a" + r);
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8x"), r + "x");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xF0\x9F\x98\x80"), r + "\xF0\x9F\x98\x80");
  EXPECT_EQ(replace_invalid_utf8("clean \xC3\xA9"), "clean \xC3\xA9");
}

TEST(Unicode, EveryCodePointSurvivesWritingAndReading) {
  for (uint32_t cp = 0; cp < 0x110000; ++cp) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    const std::string text = utf8({cp});
    int n = 0;
    ASSERT_EQ(decode_valid(text.data(), &n), cp);
    ASSERT_EQ(static_cast<size_t>(n), text.size());
    const Utf8Step step = next_utf8(text.data(), text.data() + text.size());
    ASSERT_EQ(step.kind, Utf8Step::kGood);
    ASSERT_EQ(static_cast<size_t>(step.n_bytes), text.size());
  }
}

}  // namespace
}  // namespace okibi::tokenizer
