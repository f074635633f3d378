// The hash of n-grams against the published constants of Qwen3.8-Flash-Next and rows computed from
// them independently (spec, sections 1.3 and 8.1), and the rules of the window.
#include "ops/ngram_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace okibi::ops {
namespace {

constexpr int32_t kReset = 248044;
constexpr uint64_t kMultipliers[] = {23703573157769, 20109073645365, 8052911324071};
constexpr uint64_t kVocabulary[] = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063,
                                    20000069, 20000077, 20000081, 20000093, 20000107, 20000147,
                                    20000153, 20000159, 20000161, 20000171};

// Rows of the joined table: each head's behind those of the heads before it.
std::vector<uint64_t> joined_rows(const std::vector<int32_t>& window) {
  uint64_t hashes[2], offset = 0;
  ngram_hashes(window, kMultipliers, hashes);
  std::vector<uint64_t> rows;
  for (size_t h = 0; h < 16; ++h) {
    rows.push_back(hashes[h / 8] % kVocabulary[h] + offset);
    offset += kVocabulary[h];
  }
  return rows;
}

TEST(NgramHash, NamesTheRowsOfThePublishedConstants) {
  const int32_t e = kReset;
  EXPECT_EQ(joined_rows({9707, e, e}),
            (std::vector<uint64_t>{16410909, 39682429, 55103279, 60931720, 87006904, 116506179,
                                   131512017, 152932897, 169641436, 182022480, 209277433, 237891023,
                                   256841529, 277007269, 290665954, 300984276}));
  EXPECT_EQ(joined_rows({11, 9707, e}),
            (std::vector<uint64_t>{18158303, 36390029, 45652312, 70783524, 98191154, 114024957,
                                   127804916, 159566246, 175132467, 192583600, 217919476, 237199054,
                                   259336807, 261799367, 289359313, 307699687}));
  EXPECT_EQ(joined_rows({1879, 11, 9707}),
            (std::vector<uint64_t>{6380558, 26411572, 56460672, 78566983, 94693008, 106742196,
                                   124822692, 148942556, 164226950, 190352573, 210933682, 238908951,
                                   242182004, 265475238, 299910982, 312121804}));
  EXPECT_EQ(joined_rows({e, e, e}),
            (std::vector<uint64_t>{9663979, 26558231, 56120240, 74755659, 80459717, 109265651,
                                   132697467, 151022725, 170054832, 192967038, 200687722, 225763581,
                                   259275737, 272983544, 297596484, 300986548}));
}

// The window of the last of `ids`.
std::vector<int32_t> window_of(const std::vector<int32_t>& ids, size_t n = 3) {
  std::vector<int32_t> window(n);
  ngram_window(ids.back(), std::span(ids).first(ids.size() - 1), kReset, window);
  return window;
}

TEST(NgramWindow, EndsAtTheStartAndAtTheResetToken) {
  const int32_t a = 5, b = 6, c = 7, e = kReset;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(window_of({a}), (Ids{a, e, e}));
  EXPECT_EQ(window_of({a, b}), (Ids{b, a, e}));
  EXPECT_EQ(window_of({a, b, c}), (Ids{c, b, a}));
  EXPECT_EQ(window_of({9, 9, a, b, c}), (Ids{c, b, a}));
  EXPECT_EQ(window_of({a, e, b}), (Ids{b, e, e}));
  EXPECT_EQ(window_of({a, e}), (Ids{e, a, e})) << "a reset does not cut its own window";
  EXPECT_EQ(window_of({c, a, e}), (Ids{e, a, c}));
  EXPECT_EQ(window_of({e, a, b}), (Ids{b, a, e}));
  EXPECT_EQ(window_of({a, e, e}), (Ids{e, e, e}));
  EXPECT_EQ(window_of({a, b, e, c}, 4), (Ids{c, e, e, e}));
}

}  // namespace
}  // namespace okibi::ops
