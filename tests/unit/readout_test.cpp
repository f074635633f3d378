// Probabilities, scores and confidences against worked numbers, and the response body.
#include "decide/readout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "decide/answers_json.h"

namespace okibi::decision {
namespace {

Question question_of(QuestionType type, size_t n) {
  Question question{.id = "q", .type = type};
  for (size_t i = 0; i < n; ++i) {
    question.options.push_back({.key = std::string(1, static_cast<char>('a' + i))});
  }
  return question;
}

Answer answer_of(QuestionType type, std::vector<double> probabilities) {
  Answer answer{.id = "q", .type = type};
  fill_from_probabilities(std::move(probabilities), &answer);
  return answer;
}

TEST(Readout, SoftmaxIsExactOnKnownRatiosAndNeverOverflows) {
  const float log2 = std::log(2.0f);
  const std::vector<float> logits = {0, log2, 2 * log2};
  const auto p = softmax(logits);
  EXPECT_NEAR(p[0], 1.0 / 7, 1e-7);
  EXPECT_NEAR(p[1], 2.0 / 7, 1e-7);
  EXPECT_NEAR(p[2], 4.0 / 7, 1e-7);

  const auto huge = softmax(std::vector<float>{3e38f, -3e38f, 3e38f});
  EXPECT_EQ(huge[0], 0.5);
  EXPECT_EQ(huge[1], 0.0);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0), 1e-12);
}

TEST(Readout, ChoiceConfidenceIsTheScaledLargestProbability) {
  EXPECT_NEAR(choice_confidence(std::vector<double>{0.72, 0.21, 0.07}), 0.58, 1e-12);
  EXPECT_NEAR(choice_confidence(std::vector<double>{0.35, 0.65}), 0.3, 1e-12);
  EXPECT_NEAR(choice_confidence(std::vector<double>{0.25, 0.25, 0.25, 0.25}), 0, 1e-12);
  EXPECT_EQ(choice_confidence(std::vector<double>{1, 0}), 1);
  EXPECT_EQ(choice_confidence(std::vector<double>{1}), 1);
}

TEST(Readout, ScoreConfidenceIsByDistanceToTheMostLikelyLevel) {
  EXPECT_NEAR(score_confidence(std::vector<double>{0.05, 0.15, 0.5, 0.3}), 0.45, 1e-12);
  EXPECT_NEAR(score_confidence(std::vector<double>{0.1, 0.3, 0.6}), 0.25, 1e-12);
  // Two levels: the rule of a choice.
  EXPECT_NEAR(score_confidence(std::vector<double>{0.35, 0.65}), 0.3, 1e-12);
  // Far ends: worse than uniform, reported as 0.
  EXPECT_EQ(score_confidence(std::vector<double>{0.51, 0, 0, 0.49}), 0);
  EXPECT_EQ(score_confidence(std::vector<double>{0, 0, 1}), 1);
  EXPECT_EQ(score_confidence(std::vector<double>{1}), 1);
}

TEST(Readout, TypesReportWhatTheyShould) {
  const Answer score = answer_of(QuestionType::kScore, {0.05, 0.15, 0.5, 0.3});
  EXPECT_NEAR(score.score, 2.05, 1e-12);
  EXPECT_EQ(score.best, 2u);
  const Answer noul = answer_of(QuestionType::kNoul, {0.91, 0.09});
  EXPECT_EQ(noul.score, 0.91);
  EXPECT_EQ(noul.confidence, 0);
  const Answer choice = answer_of(QuestionType::kChoice, {0.2, 0.4, 0.4});
  EXPECT_EQ(choice.best, 1u) << "a tie goes to the lower index";
}

TEST(Readout, LogitsThatAreNoNumbersAreRefused) {
  const Question question = question_of(QuestionType::kChoice, 2);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    const auto answer = read_answer(question, std::vector<OrderedLogits>{{{0, 1}, {1, bad}}}, 1);
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.status().message().find("option 1"), std::string::npos);
  }
}

TEST(Readout, HashSeesTheBitsOfTheLabelLogits) {
  const Question question = question_of(QuestionType::kNoul, 2);
  const auto one = read_answer(question, std::vector<OrderedLogits>{{{0, 1}, {1, 2}}}, 1);
  const auto same = read_answer(question, std::vector<OrderedLogits>{{{0, 1}, {1, 2}}}, 1);
  const auto other = read_answer(
      question, std::vector<OrderedLogits>{{{0, 1}, {1, std::nextafter(2.0f, 3.0f)}}}, 1);
  EXPECT_EQ(one->label_logits_hash, same->label_logits_hash);
  EXPECT_NE(one->label_logits_hash, other->label_logits_hash);
  EXPECT_NEAR(one->score, 1 / (1 + std::exp(1.0)), 1e-12);
}

TEST(Readout, OutsideMassIsWhatTheLabelsDoNotHold) {
  // Of 8 equal tokens, two are labels.
  const std::vector<float> all(8, -3.5f), labels(2, -3.5f);
  EXPECT_NEAR(outside_mass(labels, all), 0.75, 1e-12);
  const std::vector<float> sure = {100, 0, 0, 0};
  EXPECT_NEAR(outside_mass(std::vector<float>{100, 0}, sure), 0, 1e-12);
  EXPECT_NEAR(outside_mass(std::vector<float>{0, 0}, sure), 1, 1e-12);
}

TEST(Readout, OneOptionIsCertain) {
  for (QuestionType type : {QuestionType::kChoice, QuestionType::kScore}) {
    const Answer answer = settled_answer(question_of(type, 1));
    EXPECT_EQ(answer.probabilities, std::vector<double>{1.0});
    EXPECT_EQ(answer.confidence, 1);
    EXPECT_EQ(answer.score, 0);
    EXPECT_EQ(answer.n_suffix_tokens, 0u);
  }
}

TEST(AnswersJson, WritesTheBodyOfTheApi) {
  DecisionRequest request;
  auto questions = parse_questions(R"({
    "cause": {"type": "choice", "criteria": {"over\"heat": null, "10": null, "2": null}},
    "severity": {"type": "score", "criteria": ["note it", {"level": 1.50}, ["a", "b"], "evacuate"]},
    "fan/failed": {"type": "noul", "instructions": "Has it?"}})");
  ASSERT_TRUE(questions.ok());
  request.questions = *questions;
  DecisionResult result{.n_prefix_tokens = 200, .n_suffix_tokens = 12};
  result.answers = {answer_of(QuestionType::kChoice, {0.75, 0.125, 0.125}),
                    answer_of(QuestionType::kScore, {0, 0, 1, 0}),
                    answer_of(QuestionType::kNoul, {0.875, 0.125})};
  EXPECT_EQ(answers_json(request, result, "m-\"1\""),
            R"({"model": "m-\"1\"", "answers": {)"
            R"("cause": {"type": "choice", "choice": "over\"heat", "probabilities": )"
            R"({"over\"heat": 0.75, "10": 0.125, "2": 0.125}, "confidence": 0.625}, )"
            R"("severity": {"type": "score", "score": 2.0, "legend": {"0": "note it", "1": )"
            R"({"level": 1.50}, "2": ["a", "b"], "3": "evacuate"}, "probabilities": )"
            R"({"0": 0.0, "1": 0.0, "2": 1.0, "3": 0.0}, "confidence": 1.0}, )"
            R"("fan/failed": {"type": "noul", "noul": 0.875}}, )"
            R"("usage": {"input_tokens": 212, "output_tokens": 0}})");
}

TEST(AnswersJson, NumbersReadBackToTheSameBits) {
  for (double value : {0.0, 1.0, 0.1, 1.0 / 3, 5e-324, 1e-7, 0.9999999999999999}) {
    const std::string text = number_json(value);
    const auto back = nlohmann::json::parse(text);
    EXPECT_TRUE(back.is_number_float()) << text;
    EXPECT_EQ(back.get<double>(), value) << text;
  }
}

TEST(Readout, OrdersAreAveragedInOptionOrder) {
  const Question question{.id = "q", .type = QuestionType::kChoice, .options = {{"a"}, {"b"}}};
  const float one = 1, zero = 0;
  const auto answer = read_answer(
      question, std::vector<OrderedLogits>{{{0, 1}, {one, zero}}, {{1, 0}, {one, zero}}}, 1);
  ASSERT_TRUE(answer.ok());
  // The letter A wins both times: a bias of order, not an answer.
  EXPECT_NEAR(answer->probabilities[0], 0.5, 1e-12);
  EXPECT_NEAR(answer->order_spread, 2 / (1 + std::exp(-1.0)) - 1, 1e-12);
}

TEST(Readout, TemperatureFlattens) {
  const Question question{.id = "q", .type = QuestionType::kChoice, .options = {{"a"}, {"b"}}};
  const auto answer =
      read_answer(question, std::vector<OrderedLogits>{{{0, 1}, {2, 0}}}, /*temperature=*/2);
  ASSERT_TRUE(answer.ok());
  EXPECT_NEAR(answer->probabilities[0], 1 / (1 + std::exp(-1.0)), 1e-12);
  EXPECT_EQ(answer->order_spread, 0);
}

}  // namespace
}  // namespace okibi::decision
