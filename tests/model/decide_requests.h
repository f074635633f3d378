// What tests of kept states ask: three questions about a text or a picture, of the tiny vision
// model.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "model/picture_files.h"
#include "okibi/decision.h"

namespace okibi::testing {

inline const char* const kKilnState =
    "The kiln tripped at 03:10 and nobody wrote anything down, again.";
inline const std::string kTiny = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/";
inline const std::string kTinyModel = kTiny + "lfm2vl-tiny-f32.gguf";
inline std::shared_ptr<Engine> open(int64_t state_mib, int64_t answer_mib, uint32_t n_ctx = 2048,
                                    const std::string& model = kTinyModel, int n_threads = 1) {
  const bool has_vision = model == kTinyModel;
  auto engine =
      Engine::open({.model_path = model,
                    .mmproj_path = has_vision ? kTiny + "mmproj-lfm2vl-tiny-f32.gguf" : "",
                    .state_cache_mib = state_mib,
                    .answer_cache_mib = answer_mib,
                    .n_threads = n_threads,
                    .n_ctx = n_ctx,
                    .n_sessions = 1});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

inline DecisionRequest request_about(const std::string& state, const std::string& word) {
  auto questions =
      parse_questions(R"({"a": {"type": "noul", "instructions": "Is it )" + word + R"(?"},
          "b": {"type": "choice", "criteria": {"one": null, "two": "the second", "three": null}},
          "c": {"type": "score", "instructions": "How )" +
                      word + R"(?",
                "criteria": ["not", "some", "very"]}})");
  EXPECT_TRUE(questions.ok());
  return {.state = state, .questions = *std::move(questions)};
}

inline DecisionResult decided(Engine& engine, const DecisionRequest& request) {
  auto result = decide(engine, request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : DecisionResult();
}

inline void expect_same(const DecisionResult& a, const DecisionResult& b) {
  ASSERT_EQ(a.answers.size(), b.answers.size());
  for (size_t i = 0; i < a.answers.size(); ++i) {
    EXPECT_EQ(a.answers[i].label_logits_hash, b.answers[i].label_logits_hash);
    EXPECT_EQ(a.answers[i].probabilities, b.answers[i].probabilities);
  }
}

inline DecisionRequest request_about_picture(Engine& engine, uint32_t seed,
                                             const std::string& word) {
  DecisionRequest request = request_about(kKilnState, word);
  auto picture = engine.encode_picture(busy_png(64, 64, seed));
  EXPECT_TRUE(picture.ok()) << picture.status().message();
  request.pictures = {*std::move(picture)};
  return request;
}

}  // namespace okibi::testing
