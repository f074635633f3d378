#include "decide/readout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "decide/json_value.h"

namespace okibi::decision {

std::vector<double> softmax(std::span<const float> logits, double temperature) {
  CHECK(!logits.empty(), "no logits");
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    out[i] = std::exp((static_cast<double>(logits[i]) - largest) / temperature);
    sum += out[i];
  }
  for (double& p : out) p /= sum;
  return out;
}

double log_sum_exp(std::span<const float> logits) {
  CHECK(!logits.empty(), "no logits");
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

namespace {

// max_element returns the first of equals: the lowest index wins a tie.
size_t index_of_largest(std::span<const double> probabilities) {
  return std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
}

}  // namespace

double choice_confidence(std::span<const double> probabilities) {
  const double n = static_cast<double>(probabilities.size());
  if (n < 2) return 1;
  const double largest = probabilities[index_of_largest(probabilities)];
  return std::clamp((n * largest - 1) / (n - 1), 0.0, 1.0);
}

double score_confidence(std::span<const double> probabilities) {
  const size_t n = probabilities.size();
  if (n < 2) return 1;
  const size_t best = index_of_largest(probabilities);
  const size_t middle = n / 2;
  double distance = 0, uniform_distance = 0;
  for (size_t i = 0; i < n; ++i) {
    distance += probabilities[i] * static_cast<double>(i > best ? i - best : best - i);
    uniform_distance += static_cast<double>(i > middle ? i - middle : middle - i);
  }
  uniform_distance /= static_cast<double>(n);
  return std::clamp(1 - distance / uniform_distance, 0.0, 1.0);
}

void fill_from_probabilities(std::vector<double> probabilities, Answer* answer) {
  answer->best = index_of_largest(probabilities);
  switch (answer->type) {
    case QuestionType::kNoul:
      answer->score = probabilities[0];
      break;
    case QuestionType::kChoice:
      answer->confidence = choice_confidence(probabilities);
      break;
    case QuestionType::kScore:
      answer->score = 0;
      for (size_t i = 0; i < probabilities.size(); ++i) {
        answer->score += static_cast<double>(i) * probabilities[i];
      }
      answer->confidence = score_confidence(probabilities);
      break;
  }
  answer->probabilities = std::move(probabilities);
}

Answer settled_answer(const Question& question) {
  Answer answer{.id = question.id, .type = question.type};
  fill_from_probabilities({1.0}, &answer);
  return answer;
}

Result<Answer> read_answer(const Question& question, std::span<const OrderedLogits> orders,
                           double temperature) {
  const size_t n = question.options.size();
  CHECK(!orders.empty(), "a question in no order");
  std::vector<double> mean(n), least(n, 1.0), most(n, 0.0);
  std::vector<float> all_logits;
  for (const OrderedLogits& one : orders) {
    CHECK(one.logits.size() == n && one.order.size() == n, "%zu logits, %zu in order, %zu options",
          one.logits.size(), one.order.size(), n);
    for (size_t i = 0; i < n; ++i) {
      if (std::isfinite(one.logits[i])) continue;
      return bad_data(
          fmt::format("question {}: the model's output for option {} is {}, not a "
                      "finite number",
                      quote_for_message(question.id), one.order[i], one.logits[i]));
    }
    const std::vector<double> probabilities = softmax(one.logits, temperature);
    for (size_t i = 0; i < n; ++i) {
      const size_t option = one.order[i];
      mean[option] += probabilities[i] / static_cast<double>(orders.size());
      least[option] = std::min(least[option], probabilities[i]);
      most[option] = std::max(most[option], probabilities[i]);
    }
    all_logits.insert(all_logits.end(), one.logits.begin(), one.logits.end());
  }
  Answer answer{.id = question.id, .type = question.type};
  for (size_t i = 0; i < n; ++i) {
    answer.order_spread = std::max(answer.order_spread, most[i] - least[i]);
  }
  fill_from_probabilities(std::move(mean), &answer);
  answer.label_logits_hash = hash_floats(all_logits);
  return answer;
}

double outside_mass(std::span<const float> label_logits, std::span<const float> all_logits) {
  const double whole = log_sum_exp(all_logits);
  double inside = 0;
  for (float logit : label_logits) inside += std::exp(static_cast<double>(logit) - whole);
  return std::clamp(1 - inside, 0.0, 1.0);
}

}  // namespace okibi::decision
