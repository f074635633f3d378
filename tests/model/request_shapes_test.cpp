// Requests of unusual shape, answered as usual ones are: twelve questions about one picture, a
// choice of 255 options, a panorama of tiles. Right where the bundled model knows the matter; the
// same bits together and alone, cold and warm, everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "decide/prompt.h"
#include "model/picture_files.h"
#include "okibi/decision.h"
#include "okibi/session.h"
#include "platform/file_map.h"

namespace okibi {
namespace {

const std::string kEye = OKIBI_SOURCE_DIR "/models/okibi-eye/";
const std::string kRings = OKIBI_SOURCE_DIR "/bench/decisions/rings-512x286.png";
const std::string kSmolLm2 = OKIBI_SOURCE_DIR "/models/downloads/SmolLM2-135M-Instruct.Q4_1.gguf";

std::shared_ptr<Engine> open(EngineOptions options) {
  options.n_threads = 2;
  options.n_sessions = 1;
  if (options.n_ctx == 0) options.n_ctx = 4096;
  auto engine = Engine::open(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

// With every budget at 0, or as it runs by default.
std::shared_ptr<Engine> open_eye(bool keeps) {
  EngineOptions options{.model_path = kEye + "okibi-eye.gguf",
                        .mmproj_path = kEye + "mmproj-okibi-eye.gguf"};
  if (!keeps) options.vision_cache_mib = options.state_cache_mib = options.answer_cache_mib = 0;
  return open(std::move(options));
}

DecisionResult asked(Engine& engine, const std::vector<uint8_t>& file,
                     std::vector<Question> questions) {
  auto picture = engine.encode_picture(file);
  EXPECT_TRUE(picture.ok()) << picture.status().message();
  DecisionRequest request{.questions = std::move(questions)};
  if (picture.ok()) request.pictures = {*std::move(picture)};
  auto result = decide(engine, request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : DecisionResult();
}

void expect_same(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.label_logits_hash, b.label_logits_hash) << a.id;
  EXPECT_EQ(a.probabilities, b.probabilities) << a.id;
}

// Computed, computed on a kept state, kept, and each question alone on an engine that keeps
// nothing. Returns the first.
DecisionResult asked_every_way(const std::vector<uint8_t>& file,
                               const std::vector<Question>& questions) {
  const auto cold = open_eye(false), warm = open_eye(true);
  if (cold == nullptr || warm == nullptr) return {};
  const DecisionResult first = asked(*cold, file, questions);
  asked(*warm, file, {questions[0]});  // leaves the picture and the state
  const DecisionResult second = asked(*warm, file, questions);
  const DecisionResult third = asked(*warm, file, questions);
  EXPECT_EQ(second.n_known_prefix_tokens, second.n_prefix_tokens);
  for (size_t i = 0; i < questions.size(); ++i) {
    EXPECT_TRUE(third.answers[i].was_kept);
    expect_same(first.answers[i], second.answers[i]);
    expect_same(first.answers[i], third.answers[i]);
    expect_same(first.answers[i], asked(*cold, file, {questions[i]}).answers[0]);
  }
  return first;
}

TEST(RequestShapes, TwelveQuestionsAboutOnePicture) {
  const auto questions = parse_questions(R"({
      "moon": {"type": "choice", "instructions": "What colour is the moon?",
               "criteria": {"green": null, "red": null, "cyan": null, "purple": null}},
      "word": {"type": "choice", "instructions": "Which word is written?",
               "criteria": {"lemon": null, "corn": null, "apple": null, "bread": null}},
      "rings": {"type": "score", "instructions": "How many rings are there?",
                "criteria": ["none", "one", "two", "three or more"]},
      "place": {"type": "choice", "instructions": "Where is the cyan arrow?",
                "criteria": {"top left": null, "left": null, "center": null, "bottom": null}},
      "ground": {"type": "choice", "instructions": "What colour is the background?",
                 "criteria": {"pink": null, "green": null, "blue": null}},
      "beside": {"type": "noul", "instructions": "Is the moon to the left of the red ring?"},
      "star": {"type": "noul", "instructions": "Is there a star?"},
      "letters": {"type": "choice", "instructions": "What colour is the word?",
                  "criteria": {"blue": null, "red": null, "black": null}},
      "arrows": {"type": "score", "instructions": "How many arrows are there?",
                 "criteria": ["none", "one", "two", "three or more"]},
      "corner": {"type": "choice", "instructions": "What is at the top left?",
                 "criteria": {"star": null, "heart": null, "ring": null}},
      "is_moon": {"type": "noul", "instructions": "Is there a moon?"},
      "larger": {"type": "noul", "instructions": "Is the green ring larger than the red ring?"}})");
  ASSERT_TRUE(questions.ok()) << questions.status().message();
  ASSERT_EQ(questions->size(), 12u);
  const DecisionResult result = asked_every_way(testing::read_bytes(kRings), *questions);
  ASSERT_EQ(result.answers.size(), 12u);
  const std::vector<size_t> right = {1, 2, 2, 1, 0, 0, 1, 1, 2, 2, 0, 0};
  for (size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(result.answers[i].best, right[i]) << result.answers[i].id;
  }
}

// Green, with one red circle in the middle of the fifth of eight tiles.
std::vector<uint8_t> panorama() {
  return testing::make_png(3000, 400, [](uint32_t x, uint32_t y) {
    const int dx = static_cast<int>(x) - 1687, dy = static_cast<int>(y) - 200;
    return dx * dx + dy * dy < 110 * 110 ? testing::Rgb{214, 32, 32} : testing::Rgb{40, 156, 60};
  });
}

std::vector<Question> panorama_questions() {
  auto questions = parse_questions(R"({
      "ground": {"type": "choice", "instructions": "What colour is the background?",
                 "criteria": {"red": null, "green": null, "blue": null, "yellow": null}},
      "star": {"type": "noul", "instructions": "Is there a star?"},
      "circles": {"type": "score", "instructions": "How many circles are there?",
                  "criteria": ["none", "one", "two", "three or more"]}})");
  EXPECT_TRUE(questions.ok()) << questions.status().message();
  return *std::move(questions);
}

void expect_right(const DecisionResult& result) {
  ASSERT_EQ(result.answers.size(), 3u);
  EXPECT_EQ(result.answers[0].best, 1u);
  EXPECT_EQ(result.answers[1].best, 1u);
  EXPECT_EQ(result.answers[2].best, 1u);
}

TEST(RequestShapes, APanoramaIsTilesWithinBounds) {
  const auto engine = open_eye(true);
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->encode_picture(testing::read_bytes(kRings)).ok());  // buffers are there now
  const auto file = panorama();
  const uint64_t before = peak_resident_bytes();
  const auto picture = engine->encode_picture(file);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  // 3.4 MiB of pixels, 6 MiB of canvas, as much of views, 2 MiB of rows; sanitizers keep more.
  EXPECT_LT(peak_resident_bytes() - before, uint64_t{96} << 20);
  EXPECT_TRUE(picture->is_tiled);
  EXPECT_EQ(picture->columns, 8);
  EXPECT_EQ(picture->rows, 1);
  EXPECT_TRUE(picture->has_thumbnail);
  ASSERT_EQ(picture->views.size(), 9u);
  EXPECT_EQ(picture->views.back().n_tokens, 215u);
  EXPECT_EQ(picture->n_image_tokens, 8u * 256u + 215u);
  EXPECT_EQ(picture->n_prompt_tokens, 2274u);
  // The seven plain tiles are one view.
  EXPECT_EQ(picture->views_encoded, 3u);
  const VisionCacheStats stats = engine->vision_cache_stats();
  EXPECT_LE(stats.bytes.bytes + stats.views.bytes, stats.budget_bytes);
  expect_right(asked(*engine, file, panorama_questions()));
}

TEST(SlowRequestShapes, APanoramaHasTheSameBitsEveryWay) {
  expect_right(asked_every_way(panorama(), panorama_questions()));
}

Question choice_of(size_t n) {
  Question question{
      .id = "which", .type = QuestionType::kChoice, .instructions = "Which word fits?"};
  for (size_t i = 0; i < n; ++i) {
    const std::string number = std::to_string(i);
    question.options.push_back({"w" + number, i % 8 == 0 ? "the word " + number : "", ""});
  }
  return question;
}

TEST(RequestShapes, AChoiceOf255OptionsAboutAPicture) {
  std::vector<Question> questions = {choice_of(255)};
  questions.push_back(panorama_questions()[1]);
  const DecisionResult result = asked_every_way(testing::read_bytes(kRings), questions);
  ASSERT_EQ(result.answers.size(), 2u);
  const std::vector<double>& p = result.answers[0].probabilities;
  ASSERT_EQ(p.size(), 255u);
  EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12);
  EXPECT_EQ(result.answers[1].best, 1u);  // no star
}

// 255 labels of one token each. The readout is right when it is what the whole output row says.
TEST(SlowRequestShapes, AChoiceOf255Options) {
  const auto cold = open({.model_path = kSmolLm2, .state_cache_mib = 0, .answer_cache_mib = 0});
  const auto warm = open({.model_path = kSmolLm2});
  ASSERT_TRUE(cold != nullptr && warm != nullptr);
  DecisionRequest request{.state = "The word is 70.", .questions = {choice_of(255)}};
  Question yes{.id = "yes", .instructions = "Is there a word?"};
  yes.options = {{"true", "", ""}, {"false", "", ""}};
  const auto alone = decide(*cold, request);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  const Answer& answer = alone->answers[0];
  ASSERT_EQ(answer.probabilities.size(), 255u);

  const auto prompts = decision::make_prompts(nullptr, cold->text(), request);
  ASSERT_TRUE(prompts.ok());
  const std::vector<TokenId>& labels = prompts->asked[0].labels;
  EXPECT_EQ(std::set<TokenId>(labels.begin(), labels.end()).size(), 255u);
  auto session = cold->new_session();
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(prompts->asked[0].prompt.tokens).ok());
  const std::span<const float> logits = (*session)->logits();
  double sum = 0;
  size_t best = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    sum += std::exp(static_cast<double>(logits[labels[i]]));
    if (logits[labels[i]] > logits[labels[best]]) best = i;
  }
  EXPECT_EQ(answer.best, best);
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_NEAR(answer.probabilities[i], std::exp(static_cast<double>(logits[labels[i]])) / sum,
                1e-12);
  }

  request.questions.push_back(yes);
  for (int round = 0; round < 2; ++round) {
    const auto beside = decide(*warm, request);
    ASSERT_TRUE(beside.ok());
    expect_same(answer, beside->answers[0]);
    EXPECT_EQ(beside->answers[0].was_kept, round == 1);
  }
  request.questions = {choice_of(256)};
  EXPECT_FALSE(decide(*cold, request).ok());
}

}  // namespace
}  // namespace okibi
