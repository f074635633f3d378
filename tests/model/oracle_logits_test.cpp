// Tiny models against the logits of their official implementation: every position of every text
// case, on every level that this host runs, and the greedy continuation.
//
// Tolerance: |difference| <= 1e-3 x max(1, standard deviation of the case's logits); a float64
// implementation meets 5e-5, the rest is float32 rounding.
#include <gtest/gtest.h>

#include <cstdio>

#include "model/golden_model.h"
#include "safetensors.h"

namespace okibi::testing {
namespace {

constexpr double kTolerance = 1e-3;

class OracleLogits : public ::testing::TestWithParam<std::string> {};

void check_case(Engine& engine, const nlohmann::json& golden, const std::vector<float>& logits) {
  const auto ids = golden.at("tokens").get<std::vector<TokenId>>();
  const size_t n_vocab = engine.info().n_vocab;
  ASSERT_EQ(logits.size(), ids.size() * n_vocab);
  const double tolerance = kTolerance * std::max(1.0, standard_deviation(logits));

  Walk seen = walk(engine, ids);
  ASSERT_EQ(seen.rows.size(), ids.size());
  double worst = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < n_vocab; ++j) {
      const double difference = std::fabs(seen.rows[i][j] - logits[i * n_vocab + j]);
      ASSERT_LE(difference, tolerance) << "position " << i << " of " << ids.size() << ", id " << j;
      worst = std::max(worst, difference);
    }
  }
  std::printf("    %zu tokens: largest difference %.2e (allowed %.2e)\n", ids.size(), worst,
              tolerance);
  expect_greedy(*seen.session, golden.at("greedy").get<std::vector<TokenId>>(),
                golden.at("margins").get<std::vector<double>>(), tolerance);
}

TEST_P(OracleLogits, Lfm2TextMatchesTheOfficialImplementationAtEveryPosition) {
  const std::string folder = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/";
  const nlohmann::json golden = read_json(folder + "golden.json");
  const SafeTensors tensors(folder + "golden.safetensors");
  const std::shared_ptr<Engine> engine = open_engine({.model_path = folder + "lfm2vl-tiny-f32.gguf",
                                                      .cpu_level = GetParam(),
                                                      .n_threads = 2,
                                                      .kv_type = KvCacheType::kF32});
  ASSERT_NE(engine, nullptr);
  std::printf("  %s: %s\n", GetParam().c_str(), engine->numeric_identity().c_str());
  const nlohmann::json& cases = golden.at("text").at("cases");
  ASSERT_EQ(cases.size(), 4u);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    check_case(*engine, cases[i], tensors.floats("text" + std::to_string(i) + ".logits"));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, OracleLogits, ::testing::ValuesIn(host_levels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace okibi::testing
