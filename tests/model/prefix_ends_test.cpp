// Prefix ends that a request names: the next request that begins alike finds them, token for token,
// and no bit of an answer depends on them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "decide/prompt.h"
#include "model/decide_requests.h"
#include "okibi/decision.h"

namespace okibi {
namespace {

using testing::decided;
using testing::expect_same;
using testing::open;
using testing::request_about;
using testing::request_about_picture;

const std::string kSmolLm2 =
    OKIBI_SOURCE_DIR "/models/downloads/SmolLM2-135M-Instruct.Q4_1.gguf";  // no recurrent state
const std::string kRules = "Answer about kilns. A kiln above 1,280 C has tripped";
const std::string kCase = kRules + "\n\nUser: Kiln 2 shows 1,340 C.";

DecisionRequest with_ends(DecisionRequest request, std::vector<size_t> ends, bool only = false) {
  request.prefix_ends = std::move(ends);
  request.only_prefix_ends = only;
  return request;
}

// The text of the first n tokens of a request's prompts.
std::string begin_of(Engine& engine, const DecisionRequest& request, size_t n) {
  const auto prompts = decision::make_prompts(&engine, engine.text(), request);
  EXPECT_TRUE(prompts.ok()) << prompts.status().message();
  return engine.text().decode(std::span(prompts->asked[0].prompt.tokens).first(n), true);
}

TEST(PrefixEnds, ALaterRequestWithAnotherRestBeginsThere) {
  for (const std::string& model : {testing::kTinyModel, kSmolLm2}) {
    SCOPED_TRACE(model);
    if (!std::ifstream(model).good()) GTEST_SKIP() << "run `make models` first";
    const auto cold = open(0, 0, 2048, model), warm = open(64, 0, 2048, model);
    ASSERT_TRUE(cold != nullptr && warm != nullptr);
    const std::string rests[] = {"\n\nUser: Fan B is silent.", "\nseven", "\n\n\n", "", "\n 12"};
    for (const std::string& rest : rests) {
      SCOPED_TRACE(rest);
      const DecisionRequest plain = request_about(kRules + rest, "hot");
      const DecisionRequest marked = with_ends(plain, {kRules.size()});
      const DecisionResult result = decided(*warm, marked);
      expect_same(decided(*cold, plain), result);
      if (&rest == &rests[0]) {
        EXPECT_EQ(result.n_known_prefix_tokens, 0u);
        EXPECT_EQ(result.n_kept_prefix_tokens, result.n_prefix_tokens);
        continue;
      }
      const std::string known = begin_of(*warm, marked, result.n_known_prefix_tokens);
      EXPECT_TRUE(known.ends_with(kRules)) << known;
      EXPECT_EQ(result.n_kept_prefix_tokens, result.n_prefix_tokens - result.n_known_prefix_tokens);
    }
  }
}

TEST(PrefixEnds, PicturesBeforeAnEndAreWithinIt) {
  for (const int n_threads : {1, 2}) {
    const auto cold = open(0, 0);
    const auto warm = open(64, 0, 2048, testing::kTinyModel, n_threads);
    ASSERT_TRUE(cold != nullptr && warm != nullptr);
    const std::string head = "Rules.\n\nUser: " + picture_mark(0);
    size_t n_known = 0, n_hits = 0;
    for (const uint32_t seed : {1u, 2u, 1u}) {
      for (const char* rest : {"\n\nUser: first", "\nThen this."}) {
        DecisionRequest plain = request_about_picture(*cold, seed, "hot");
        DecisionRequest marked = request_about_picture(*warm, seed, "hot");
        plain.state = marked.state = head + rest;
        marked.prefix_ends = {head.size()};
        const DecisionResult result = decided(*warm, marked);
        expect_same(decided(*cold, plain), result);
        n_known = result.n_known_prefix_tokens;
        if (n_known == 0 || n_known == result.n_prefix_tokens) continue;
        ++n_hits;
        // Equal tokens, so only the views say whose state this is.
        EXPECT_GT(n_known, marked.pictures[0].n_image_tokens);
        EXPECT_TRUE(begin_of(*warm, marked, n_known).ends_with("<|image_end|>"))
            << begin_of(*warm, marked, n_known);
      }
    }
    EXPECT_EQ(n_hits, 2u);
    EXPECT_EQ(warm->decision_cache_stats().states.entries, 6u);
  }
}

TEST(PrefixEnds, OnlyTheNamedEndsWhereNothingElseIsWanted) {
  const auto engine = open(64, 4);
  ASSERT_NE(engine, nullptr);
  const DecisionRequest plain = request_about(kCase, "hot");
  const DecisionResult cold = decided(*engine, with_ends(plain, {}, /*only=*/true));
  EXPECT_EQ(engine->decision_cache_stats().states.entries, 0u);
  EXPECT_EQ(cold.n_kept_prefix_tokens, 0u);
  const DecisionRequest marked = with_ends(plain, {kRules.size()}, /*only=*/true);
  const DecisionResult first = decided(*engine, marked);
  EXPECT_EQ(first.n_known_prefix_tokens, 0u);
  EXPECT_LT(first.n_kept_prefix_tokens, first.n_prefix_tokens);
  EXPECT_EQ(engine->decision_cache_stats().states.entries, 1u);
  const DecisionResult second = decided(*engine, marked);
  EXPECT_EQ(second.n_known_prefix_tokens, first.n_kept_prefix_tokens);
  EXPECT_EQ(second.n_kept_prefix_tokens, 0u);
  EXPECT_FALSE(second.answers[0].was_kept);
  // The whole state is known from somebody else now, and is not used.
  decided(*engine, plain);
  EXPECT_EQ(decided(*engine, marked).n_known_prefix_tokens, first.n_kept_prefix_tokens);
  EXPECT_EQ(decided(*engine, with_ends(plain, {}, true)).n_known_prefix_tokens, 0u);
  expect_same(first, second);
  expect_same(first, cold);
}

// A state known as a whole serves no prefix of itself unless the sequence can be cut.
TEST(PrefixEnds, EndsInsideAKnownStateAreKeptWhereItCanBeCut) {
  if (!std::ifstream(kSmolLm2).good()) GTEST_SKIP() << "run `make models` first";
  const auto engine = open(64, 0, 2048, kSmolLm2);
  ASSERT_NE(engine, nullptr);
  const DecisionResult whole = decided(*engine, request_about(kCase, "hot"));
  const DecisionRequest marked = with_ends(request_about(kCase, "hot"), {kRules.size()});
  EXPECT_EQ(decided(*engine, marked).n_known_prefix_tokens, whole.n_prefix_tokens);
  const DecisionResult other =
      decided(*engine, with_ends(request_about(kRules + "\nelse", "hot"), {kRules.size()}));
  EXPECT_GT(other.n_known_prefix_tokens, 10u);
  expect_same(decided(*open(0, 0, 2048, kSmolLm2), request_about(kRules + "\nelse", "hot")), other);
}

// Words, characters and marks stay whole; what lies beyond the state is refused.
TEST(PrefixEnds, AnyByteMayBeNamed) {
  const auto cold = open(0, 0), warm = open(64, 0);
  ASSERT_TRUE(cold != nullptr && warm != nullptr);
  DecisionRequest plain = request_about_picture(*cold, 1, "hot");
  DecisionRequest marked = request_about_picture(*warm, 1, "hot");
  plain.state = marked.state = "caf\xc3\xa9 kilns " + picture_mark(0) + " end";
  const DecisionResult expected = decided(*cold, plain);
  for (size_t end = 0; end <= marked.state.size(); ++end) {
    SCOPED_TRACE(end);
    expect_same(expected, decided(*warm, with_ends(marked, {end})));
  }
  const auto refused = decide(*warm, with_ends(marked, {marked.state.size() + 1}));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("a prefix ends at byte"), std::string::npos);
}

// Entries that begin alike hold the same pages, which count once.
TEST(PrefixEnds, SharedPagesCountOnce) {
  const auto one = open(64, 0), three = open(64, 0);
  ASSERT_TRUE(one != nullptr && three != nullptr);
  std::string state;
  while (state.size() < 2500) state += kRules + "\n";
  decided(*one, request_about(state, "hot"));
  decided(*three, with_ends(request_about(state, "hot"), {state.size() - 40, state.size() - 2}));
  const auto single = one->decision_cache_stats().states;
  const auto several = three->decision_cache_stats().states;
  EXPECT_EQ(several.entries, 3u);
  EXPECT_LT(several.bytes, single.bytes * 2);
  three->clear_decision_caches();
  EXPECT_EQ(three->decision_cache_stats().states.bytes, 0u);
}

// More questions than may ever run at once are no reason to drop what was just kept.
TEST(PrefixEnds, ManyQuestionsLeaveKeptStatesAlone) {
  const auto engine = open(64, 0);
  ASSERT_NE(engine, nullptr);
  std::string questions = "{";
  for (int i = 0; i < 300; ++i) {
    questions += (i > 0 ? ", \"" : "\"") + std::to_string(i) +
                 R"(": {"type": "noul", "instructions": "Is it?"})";
  }
  auto parsed = parse_questions(questions + "}");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const DecisionRequest many{.state = kCase, .questions = *std::move(parsed)};
  decided(*engine, with_ends(many, {kRules.size()}));
  EXPECT_EQ(engine->decision_cache_stats().states.entries, 2u);
  const DecisionResult other = decided(*engine, request_about(kRules + "\nelse", "hot"));
  EXPECT_GT(other.n_known_prefix_tokens, 10u);
}

// A budget of a few entries: ends come and go, counts stay true, bits stay the same.
TEST(PrefixEnds, TheBudgetHoldsWithSharedPages) {
  const auto cold = open(0, 0), warm = open(1, 0);
  ASSERT_TRUE(cold != nullptr && warm != nullptr);
  for (int i = 0; i < 30; ++i) {
    const std::string head = kRules + std::to_string(i % 7);
    const DecisionRequest plain = request_about(head + "\n" + std::to_string(i), "hot");
    expect_same(decided(*cold, plain), decided(*warm, with_ends(plain, {20, head.size()})));
    EXPECT_LE(warm->decision_cache_stats().states.bytes, 1u << 20);
  }
}

}  // namespace
}  // namespace okibi
