// Results of `okibi bench decisions` as people and programs read them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/bench_decisions_measure.h"
#include "apps/bench_report.h"

namespace okibi::apps {

// What was measured, by name and SHA-256.
struct DecisionsFiles {
  std::string image, questions, model, projector;
  std::string image_sha256, questions_sha256, model_sha256, projector_sha256, binary_sha256;
};

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(const std::vector<double>& values);
Spread total_of(std::span<const DecisionsSample> samples);  // milliseconds
double median_ms(const DecisionsResult& result, DecisionsCase which, DecisionsTime time);
double prefill_rate(const PrefillRate& rate);  // tokens per second

// A ratio that is wanted, and what was reached. All of medians.
struct DecisionsBar {
  std::string what;
  double value = 0, bar = 0;
  bool is_most = false;  // the bar is the most it may be, not the least
  bool is_met() const { return is_most ? value <= bar : value >= bar; }
};
std::vector<DecisionsBar> decisions_bars(const DecisionsResult& result);

// The encoder against the peak of its number format; none if the format's peak is not known.
struct EncoderSpeed {
  double median_ms = 0, best_ms = 0;
  double ops_per_s = 0, share = 0, best_share = 0;  // matrices and attention over the peak
  // The same where attention, which runs in bfloat16, has half the peak of int8.
  double mixed_share = 0;
  std::string peak_name;
};
std::optional<EncoderSpeed> encoder_speed(const DecisionsResult& result);

std::string decisions_table(const DecisionsFiles& files, const DecisionsPlan& plan,
                            const DecisionsResult& result);
std::string decisions_json(const DecisionsFiles& files, const DecisionsPlan& plan,
                           const DecisionsResult& result);
std::string decisions_csv(const DecisionsFiles& files, const DecisionsResult& result);
// Every request of the blocks in order, and where the time of each case goes.
std::string decisions_svg(const DecisionsFiles& files, const DecisionsResult& result);

}  // namespace okibi::apps
