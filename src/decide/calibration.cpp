#include "decide/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "decide/json_value.h"
#include "decide/readout.h"

namespace okibi::decision {
namespace {

std::vector<double> probabilities_of(const LabelledLogits& sample, double temperature) {
  std::vector<double> mean;
  for (const std::vector<float>& logits : sample.orders) {
    const std::vector<double> p = softmax(logits, temperature);
    mean.resize(p.size(), 0.0);
    for (size_t i = 0; i < p.size(); ++i) {
      mean[i] += p[i] / static_cast<double>(sample.orders.size());
    }
  }
  return mean;
}

}  // namespace

double mean_nll(std::span<const LabelledLogits> samples, double temperature) {
  double sum = 0;
  for (const LabelledLogits& sample : samples) {
    sum -= std::log(std::max(probabilities_of(sample, temperature)[sample.right], 1e-12));
  }
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

double fit_temperature(std::span<const LabelledLogits> samples) {
  if (samples.empty()) return 1;
  // Golden section on the logarithm; of one order the curve has a single valley.
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(0.05), high = std::log(50.0);
  const auto at = [&](double x) { return mean_nll(samples, std::exp(x)); };
  double a = high - ratio * (high - low), b = low + ratio * (high - low);
  double fa = at(a), fb = at(b);
  while (high - low > 1e-4) {
    if (fa <= fb) {
      high = b;
      b = a;
      fb = fa;
      a = high - ratio * (high - low);
      fa = at(a);
    } else {
      low = a;
      a = b;
      fa = fb;
      b = low + ratio * (high - low);
      fb = at(b);
    }
  }
  return std::exp((low + high) / 2);
}

double calibration_error(std::span<const LabelledLogits> samples, double temperature, int n_bins) {
  std::vector<double> confidence(static_cast<size_t>(n_bins)), right(confidence), n(confidence);
  for (const LabelledLogits& sample : samples) {
    const std::vector<double> p = probabilities_of(sample, temperature);
    const size_t best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
    const auto bin = static_cast<size_t>(std::min(n_bins - 1, static_cast<int>(p[best] * n_bins)));
    confidence[bin] += p[best];
    right[bin] += best == sample.right ? 1 : 0;
    n[bin] += 1;
  }
  double error = 0;
  for (size_t i = 0; i < n.size(); ++i) error += std::abs(confidence[i] - right[i]);
  return samples.empty() ? 0 : error / static_cast<double>(samples.size());
}

}  // namespace okibi::decision

namespace okibi {

using decision::JsonValue;

Result<Calibration> parse_calibration(std::string_view json) {
  OKIBI_ASSIGN_OR_RETURN(const JsonValue root, decision::parse_json(json));
  const JsonValue* temperatures = root.find("temperatures");
  if (temperatures == nullptr || !temperatures->is(JsonValue::Kind::kObject)) {
    return bad_data(
        "a calibration file is an object with a member \"temperatures\": an object of "
        "question type to temperature");
  }
  Calibration out;
  for (const auto& [name, value] : {std::pair{"noul", &out.noul}, std::pair{"choice", &out.choice},
                                    std::pair{"score", &out.score}}) {
    const JsonValue* found = temperatures->find(name);
    if (found == nullptr) continue;
    *value = found->is(JsonValue::Kind::kNumber) ? std::atof(found->text.c_str()) : 0;
    if (*value > 0 && std::isfinite(*value)) continue;
    return bad_data(fmt::format("the temperature of {} must be a number above 0, found {}", name,
                                decision::to_json(*found).substr(0, 80)));
  }
  const JsonValue* model = root.find("model");
  if (model != nullptr && model->is(JsonValue::Kind::kString)) out.model = model->text;
  return out;
}

std::string calibration_json(const Calibration& c) {
  return fmt::format(
      "{{\n  \"temperatures\": {{\"noul\": {:.4f}, \"choice\": {:.4f}, \"score\": {:.4f}}},\n"
      "  \"model\": {}\n}}\n",
      c.noul, c.choice, c.score, decision::quote_json(c.model));
}

}  // namespace okibi
