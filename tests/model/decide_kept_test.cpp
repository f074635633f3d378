// What decisions keep: states and label logits. Cold or warm, with either level on or off, in any
// order of requests and beside memory pressure, an answer has the same bits.
#include <gtest/gtest.h>

#include "decide/decide.h"
#include "okibi/decision.h"
#include "okibi/session.h"

namespace okibi {
namespace {

std::shared_ptr<Engine> open(int64_t state_mib, int64_t answer_mib, uint32_t n_ctx = 2048) {
  auto engine = Engine::open({.model_path = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf",
                              .state_cache_mib = state_mib,
                              .answer_cache_mib = answer_mib,
                              .n_threads = 1,
                              .n_ctx = n_ctx,
                              .n_sessions = 1});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

DecisionRequest request_about(const std::string& state, const std::string& word) {
  auto questions =
      parse_questions(R"({"a": {"type": "noul", "instructions": "Is it )" + word + R"(?"},
          "b": {"type": "choice", "criteria": {"one": null, "two": "the second", "three": null}},
          "c": {"type": "score", "instructions": "How )" +
                      word + R"(?",
                "criteria": ["not", "some", "very"]}})");
  EXPECT_TRUE(questions.ok());
  return {.state = state, .questions = *std::move(questions)};
}

DecisionResult decided(Engine& engine, const DecisionRequest& request) {
  auto result = decide(engine, request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : DecisionResult();
}

void expect_same(const DecisionResult& a, const DecisionResult& b) {
  ASSERT_EQ(a.answers.size(), b.answers.size());
  for (size_t i = 0; i < a.answers.size(); ++i) {
    EXPECT_EQ(a.answers[i].label_logits_hash, b.answers[i].label_logits_hash);
    EXPECT_EQ(a.answers[i].probabilities, b.answers[i].probabilities);
  }
}

const char* const kState = "The kiln tripped at 03:10 and nobody wrote anything down, again.";

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
