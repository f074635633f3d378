// Fitting of temperatures, the error measure, and the file.
#include "decide/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "decide/readout.h"

namespace okibi::decision {
namespace {

// Options drawn with the probabilities of logits; the model shows them `factor` times too large.
std::vector<LabelledLogits> overconfident(double factor, size_t n) {
  std::mt19937_64 rng(7);
  std::normal_distribution<float> normal(0, 1.5f);
  std::vector<LabelledLogits> samples(n);
  for (LabelledLogits& sample : samples) {
    std::vector<float> logits(4);
    for (float& v : logits) v = normal(rng);
    const std::vector<double> p = softmax(logits);
    sample.right = std::discrete_distribution<size_t>(p.begin(), p.end())(rng);
    for (float& v : logits) v *= static_cast<float>(factor);
    sample.orders = {logits};
  }
  return samples;
}

TEST(Calibration, FindsTheTemperatureThatWasPutIn) {
  EXPECT_NEAR(fit_temperature(overconfident(3, 20000)), 3, 0.1);
  EXPECT_NEAR(fit_temperature(overconfident(0.5, 20000)), 0.5, 0.02);
  EXPECT_EQ(fit_temperature({}), 1);
}

TEST(Calibration, FittedProbabilitiesMeanWhatTheySay) {
  const auto samples = overconfident(4, 20000);
  EXPECT_GT(calibration_error(samples, 1), 0.1);
  EXPECT_LT(calibration_error(samples, fit_temperature(samples)), 0.02);
}

TEST(Calibration, FileComesBack) {
  const Calibration written{.noul = 1.25, .choice = 2.5, .score = 0.75, .model = "m \"x\""};
  const auto read = parse_calibration(calibration_json(written));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->noul, 1.25);
  EXPECT_EQ(read->choice, 2.5);
  EXPECT_EQ(read->score, 0.75);
  EXPECT_EQ(read->model, "m \"x\"");
}

TEST(Calibration, BadFilesAreRefusedInWords) {
  for (const char* text :
       {"", "[]", "{}", "{\"temperatures\": 3}", "{\"temperatures\": {\"noul\": 0}}",
        "{\"temperatures\": {\"noul\": -1}}", "{\"temperatures\": {\"noul\": \"1\"}}",
        "{\"temperatures\": {\"noul\": 1e999}}"}) {
    EXPECT_FALSE(parse_calibration(text).ok()) << text;
  }
}

}  // namespace
}  // namespace okibi::decision
