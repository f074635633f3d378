// Temperatures that make probabilities mean what they say: fitted per question type on labelled
// questions, kept in a small JSON file. Plain arithmetic; knows nothing of models or prompts.
#pragma once

#include <span>
#include <vector>

#include "okibi/decision.h"

namespace okibi::decision {

// One labelled question: the label logits, in option order per order asked, and the right option.
struct LabelledLogits {
  std::vector<std::vector<float>> orders;
  size_t right = 0;
};

// Mean of -log p(right) at a temperature.
double mean_nll(std::span<const LabelledLogits> samples, double temperature);
// The temperature in [0.05, 50] with the least mean_nll, to 1e-4 of its logarithm; 1 without
// samples.
double fit_temperature(std::span<const LabelledLogits> samples);
// Expected calibration error over `n_bins` equal bins of the best option's probability.
double calibration_error(std::span<const LabelledLogits> samples, double temperature,
                         int n_bins = 10);

}  // namespace okibi::decision
