// From label logits to an answer: softmax over the labels, expected score, confidence, and the
// share of the vocabulary outside the labels. Plain double arithmetic on a handful of numbers; it
// knows nothing of models or prompts.
#pragma once

#include <span>
#include <vector>

#include "okibi/decision.h"

namespace okibi::decision {

// Of logits / temperature. Sums to 1; the largest logit is taken off first, so nothing overflows.
std::vector<double> softmax(std::span<const float> logits, double temperature = 1);
// log(sum(exp(logits))).
double log_sum_exp(std::span<const float> logits);

// (N * largest - 1) / (N - 1): 0 for a uniform distribution, 1 for certainty. 1 for one option.
double choice_confidence(std::span<const double> probabilities);
// 1 - d / u, not below 0. d: mean distance, in levels, to the most likely level; u: the same of a
// uniform distribution, taken to its middle level. Agrees with choice_confidence for two levels.
double score_confidence(std::span<const double> probabilities);

// Fills everything that follows from the probabilities (in option order).
void fill_from_probabilities(std::vector<double> probabilities, Answer* answer);

// The answer to a question with one outcome.
Answer settled_answer(const Question& question);
// The label logits of one order: logits[i] belongs to option order[i].
struct OrderedLogits {
  std::vector<size_t> order;
  std::vector<float> logits;
};
// The answer from the label logits of every order the question was asked in: each order's logits
// over the temperature to probabilities, these averaged. Fails when a logit is not a finite number.
Result<Answer> read_answer(const Question& question, std::span<const OrderedLogits> orders,
                           double temperature);
// Probability of the whole vocabulary outside the labels.
double outside_mass(std::span<const float> label_logits, std::span<const float> all_logits);

}  // namespace okibi::decision
