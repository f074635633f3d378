// What decisions keep: states and label logits. Cold or warm, with either level on or off, in any
// order of requests and beside memory pressure, an answer has the same bits.
#include <gtest/gtest.h>

#include "decide/decide.h"
#include "model/decide_requests.h"
#include "okibi/decision.h"
#include "okibi/session.h"

namespace okibi {
namespace {

using testing::decided;
using testing::expect_same;
using testing::kTinyModel;
using testing::open;
using testing::request_about;
using testing::request_about_picture;

const std::string kSmolLm2 =
    OKIBI_SOURCE_DIR "/models/downloads/SmolLM2-135M-Instruct.Q4_1.gguf";  // family llama

const char* const kState = testing::kKilnState;

TEST(DecideKept, WarmStatesChangeNoBit) {
  const auto cold = open(0, 0), warm = open(64, 0);
  ASSERT_TRUE(cold != nullptr && warm != nullptr);
  for (const char* word : {"hot", "loud", "hot", "late"}) {
    const DecisionRequest request = request_about(kState, word);
    expect_same(decided(*cold, request), decided(*warm, request));
  }
  const DecisionResult again = decided(*warm, request_about(kState, "new"));
  EXPECT_GT(again.n_prefix_tokens, 10u);
  EXPECT_EQ(again.n_known_prefix_tokens, again.n_prefix_tokens);
  EXPECT_EQ(warm->decision_cache_stats().states.hits, 4u);
  EXPECT_EQ(warm->decision_cache_stats().states.entries, 1u);
  EXPECT_EQ(cold->decision_cache_stats().states.entries, 0u);
}

TEST(DecideKept, KeptAnswersAreTheComputedOnes) {
  const auto cold = open(0, 0), warm = open(64, 4);
  ASSERT_TRUE(cold != nullptr && warm != nullptr);
  DecisionRequest request = request_about(kState, "hot");
  const DecisionResult first = decided(*warm, request);
  const DecisionResult second = decided(*warm, request);
  EXPECT_FALSE(first.answers[0].was_kept);
  for (const Answer& answer : second.answers) EXPECT_TRUE(answer.was_kept);
  expect_same(first, second);
  expect_same(decided(*cold, request), second);
  request.use_kept_answers = false;
  const DecisionResult third = decided(*warm, request);
  EXPECT_FALSE(third.answers[0].was_kept);
  expect_same(first, third);
}

// Every family, one and two threads: computed, after a kept state, and kept.
TEST(DecideKept, EveryFamilyAndThreadCountAgrees) {
  for (const std::string& model : {kTinyModel, kSmolLm2}) {
    SCOPED_TRACE(model);
    const auto cold = open(0, 0, 2048, model), warm = open(64, 4, 2048, model, 2);
    ASSERT_TRUE(cold != nullptr && warm != nullptr);
    for (const char* word : {"hot", "loud", "hot"}) {
      const DecisionRequest request = request_about(kState, word);
      expect_same(decided(*cold, request), decided(*warm, request));
    }
    EXPECT_EQ(warm->decision_cache_stats().states.hits, 1u);
    // The third request whole, and the choice, whose words are always the same, in the second.
    EXPECT_EQ(warm->decision_cache_stats().answers.hits, 4u);
  }
}

// Pictures of one size have one and the same token ids: only their views tell them apart.
TEST(DecideKept, StatesWithPicturesAreTheirOwn) {
  for (const int n_threads : {1, 2}) {
    const auto cold = open(0, 0), warm = open(64, 4, 2048, kTinyModel, n_threads);
    ASSERT_TRUE(cold != nullptr && warm != nullptr);
    std::vector<DecisionResult> results;
    for (const uint32_t seed : {1u, 2u, 1u, 2u}) {
      for (const char* word : {"hot", "loud"}) {
        const DecisionResult computed = decided(*cold, request_about_picture(*cold, seed, word));
        results.push_back(decided(*warm, request_about_picture(*warm, seed, word)));
        expect_same(computed, results.back());
      }
    }
    EXPECT_NE(results[0].answers[0].label_logits_hash, results[2].answers[0].label_logits_hash);
    EXPECT_EQ(warm->decision_cache_stats().states.entries, 2u);
    EXPECT_EQ(results[4].n_known_prefix_tokens, results[4].n_prefix_tokens);
  }
}

// A picture stands once: in front, or where a text names it, an option's key included.
TEST(DecideKept, PicturesStandWhereTheyAreNamed) {
  const auto engine = open(0, 0);
  ASSERT_NE(engine, nullptr);
  const auto n_views = [&](const DecisionRequest& request) {
    const auto prompts = decision::make_prompts(engine.get(), engine->text(), request);
    EXPECT_TRUE(prompts.ok()) << prompts.status().message();
    std::vector<size_t> n;
    for (const auto& asked : prompts->asked) n.push_back(asked.prompt.rows.size());
    return n;
  };
  DecisionRequest request = request_about_picture(*engine, 1, "hot");
  EXPECT_EQ(n_views(request), (std::vector<size_t>{1, 1, 1}));
  request.state = "before " + picture_mark(0) + " and " + picture_mark(0);
  EXPECT_EQ(n_views(request), (std::vector<size_t>{2, 2, 2}));
  request.state = "no picture";
  request.questions[1].options[0].key = picture_mark(0);
  EXPECT_EQ(n_views(request), (std::vector<size_t>{0, 1, 0}));
  // Not a mark, and no text either.
  request.questions[1].options[0].key = "\xff";
  const auto refused = decision::make_prompts(engine.get(), engine->text(), request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("not UTF-8"), std::string::npos);
}

// The outside mass was not known when the answer was kept.
TEST(DecideKept, OutsideMassIsComputedWhenItIsMissing) {
  const auto engine = open(64, 4);
  ASSERT_NE(engine, nullptr);
  DecisionRequest request = request_about(kState, "hot");
  const DecisionResult plain = decided(*engine, request);
  request.want_outside_mass = true;
  const DecisionResult with_mass = decided(*engine, request);
  EXPECT_FALSE(with_mass.answers[0].was_kept);
  EXPECT_GE(with_mass.answers[0].outside_mass, 0);
  expect_same(plain, with_mass);
  EXPECT_TRUE(decided(*engine, request).answers[0].was_kept);
}

TEST(DecideKept, ScopesShareNothing) {
  const auto engine = open(64, 4);
  ASSERT_NE(engine, nullptr);
  DecisionRequest request = request_about(kState, "hot");
  request.scope = "one";
  const DecisionResult one = decided(*engine, request);
  request.scope = "two";
  const DecisionResult two = decided(*engine, request);
  EXPECT_EQ(two.n_known_prefix_tokens, 0u);
  EXPECT_FALSE(two.answers[0].was_kept);
  expect_same(one, two);
}

// Kept states take pages that somebody else may need; then they go.
TEST(DecideKept, StatesGiveWayToSessions) {
  const auto engine = open(64, 0, /*n_ctx=*/512);
  ASSERT_NE(engine, nullptr);
  std::string state;
  for (int i = 0; i < 12; ++i) state += kState;
  for (int i = 0; i < 12; ++i) {
    decided(*engine, request_about(std::to_string(i) + state.substr(0, 500), "hot"));
  }
  EXPECT_GT(engine->decision_cache_stats().states.entries, 1u);
  auto session = engine->new_session();
  ASSERT_TRUE(session.ok());
  const std::vector<TokenId> tokens(500, 17);
  const Status status = (*session)->append(tokens);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(DecideKept, TheBudgetHoldsAndTheOldestGoes) {
  const auto engine = open(1, 0);
  ASSERT_NE(engine, nullptr);
  for (int i = 0; i < 40; ++i) {
    decided(*engine, request_about(std::to_string(i) + kState, "hot"));
    EXPECT_LE(engine->decision_cache_stats().states.bytes, 1u << 20);
  }
  engine->clear_decision_caches();
  EXPECT_EQ(engine->decision_cache_stats().states.entries, 0u);
}

// Rotations average and are answered from what is kept like everything else.
TEST(DecideKept, OrdersAreKeptOneByOne) {
  const auto engine = open(64, 4);
  ASSERT_NE(engine, nullptr);
  DecisionRequest request = request_about(kState, "hot");
  decided(*engine, request);
  request.order = OptionOrder::kTwo;
  const DecisionResult two = decided(*engine, request);
  EXPECT_FALSE(two.answers[1].was_kept);  // the reversed order is new
  EXPECT_GT(two.answers[1].order_spread, 0);
  const DecisionResult again = decided(*engine, request);
  EXPECT_TRUE(again.answers[1].was_kept);
  expect_same(two, again);
}

}  // namespace
}  // namespace okibi
