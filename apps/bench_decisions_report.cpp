#include "apps/bench_decisions_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace okibi::apps {
namespace {

constexpr double kTwinTolerance = 0.05;

// Of the two blocks with the same reuse: how far their medians are apart.
double twin_difference(const DecisionsBlock& a, const DecisionsBlock& b) {
  const double x = total_of(a.repeats()).median, y = total_of(b.repeats()).median;
  return std::abs(x - y) / (0.5 * (x + y));
}

// Milliseconds that the suffixes would take at a rate of plain prefill.
double suffix_ms_at(const DecisionsResult& result, const PrefillRate& rate) {
  return 1e3 * result.cases[kNewQuestions][0].n_suffix_tokens / prefill_rate(rate);
}

std::string levels_text(const DecisionsSample& sample) {
  std::string out;
  for (size_t i = 0; i < kDecisionsLevels; ++i) {
    out += fmt::format("{:>9}", fmt::format("{}/{}", sample.hits[i], sample.misses[i]));
  }
  return out;
}

std::string level_heads() {
  std::string out;
  for (const char* name : kDecisionsLevelNames) out += fmt::format("{:>9}", name);
  return out;
}

std::string blocks_table(const DecisionsResult& result) {
  std::string out =
      fmt::format("{:<6} {:<6} {:>10} {:>10} {:>19}  hits/misses{}\n", "block", "reuse", "first ms",
                  "repeats", "min..max", level_heads().substr(2));
  for (size_t b = 0; b < result.blocks.size(); ++b) {
    const DecisionsBlock& block = result.blocks[b];
    const Spread s = total_of(block.repeats());
    out +=
        fmt::format("{:<6} {:<6} {:>10.3f} {:>10.3f} {:>19}  repeat   {}\n", b + 1,
                    block.is_on ? "on" : "off", block.samples[0].ms[kTotal], s.median,
                    fmt::format("{:.3f}..{:.3f}", s.min, s.max), levels_text(block.samples.back()));
  }
  const double off = twin_difference(result.blocks[0], result.blocks[3]);
  const double on = twin_difference(result.blocks[1], result.blocks[2]);
  out += fmt::format("twins differ by {:.1f} % (off) and {:.1f} % (on){}\n", 100 * off, 100 * on,
                     off > kTwinTolerance ? ": the machine was not steady, measure again" : "");
  return out;
}

std::string cases_table(const DecisionsResult& result) {
  std::string out = fmt::format("{:<15} {:>9} {:>19}", "case", "ms", "min..max");
  for (size_t t = kDecode; t < kDecisionsTimes; ++t) {
    out += fmt::format(" {:>8}", kDecisionsTimeNames[t]);
  }
  out += "  hits/misses" + level_heads().substr(2) + "\n";
  for (size_t c = 0; c < kDecisionsCases; ++c) {
    const std::vector<DecisionsSample>& samples = result.cases[c];
    const Spread s = total_of(samples);
    out += fmt::format("{} {:<13} {:>9.3f} {:>19}", "abcd"[c], kDecisionsCaseNames[c], s.median,
                       fmt::format("{:.3f}..{:.3f}", s.min, s.max));
    for (size_t t = kDecode; t < kDecisionsTimes; ++t) {
      out += fmt::format(" {:>8.3f}", median_ms(result, static_cast<DecisionsCase>(c),
                                                static_cast<DecisionsTime>(t)));
    }
    out += fmt::format("           {}\n", levels_text(samples.back()));
  }
  return out;
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  return {median_of(values), *std::min_element(values.begin(), values.end()),
          *std::max_element(values.begin(), values.end())};
}

Spread total_of(std::span<const DecisionsSample> samples) {
  return spread_of(times_of(samples, kTotal));
}

double median_ms(const DecisionsResult& result, DecisionsCase which, DecisionsTime time) {
  return median_of(times_of(result.cases[which], time));
}

double prefill_rate(const PrefillRate& rate) {
  return rate.n_tokens / median_of(rate.seconds);
}

std::vector<DecisionsBar> decisions_bars(const DecisionsResult& result) {
  const double a = median_ms(result, kNoReuse, kTotal), b = median_ms(result, kNewImage, kTotal),
               c = median_ms(result, kNewQuestions, kTotal),
               d = median_ms(result, kIdentical, kTotal);
  std::vector<DecisionsBar> bars = {
      {"no reuse / identical request", a / d, 100, false},
      {"no reuse / new questions on a known image", a / c, 6, false},
      {"no reuse / new image", a / b, 2.6, false},
  };
  for (const PrefillRate& rate : result.prefill) {
    bars.push_back(
        {fmt::format("new questions / (suffix tokens / prefill rate of {} tokens)", rate.n_tokens),
         c / suffix_ms_at(result, rate), 1.2, true});
  }
  if (const auto speed = encoder_speed(result)) {
    bars.push_back({"encoder's share of the peak, " + speed->peak_name, speed->share, 0.5, false});
  }
  return bars;
}

std::optional<EncoderSpeed> encoder_speed(const DecisionsResult& result) {
  EncoderSpeed speed;
  const double peak = result.encoder_peak.ops_per_s;
  if (peak <= 0) return std::nullopt;
  speed.peak_name = result.encoder_peak.name;
  // Every request that encoded all views of the picture.
  std::vector<double> times = times_of(result.cases[kNewImage], kEncode);
  for (size_t b : {size_t{0}, size_t{3}}) {
    for (const DecisionsSample& s : result.blocks[b].samples) times.push_back(s.ms[kEncode]);
  }
  const Spread spread = spread_of(times);
  const double matrix = static_cast<double>(result.encoder_matrix_ops);
  const double attention = static_cast<double>(result.encoder_attention_ops);
  speed.median_ms = spread.median;
  speed.best_ms = spread.min;
  speed.ops_per_s = (matrix + attention) / (spread.median * 1e-3);
  speed.share = speed.ops_per_s / peak;
  speed.best_share = (matrix + attention) / (spread.min * 1e-3) / peak;
  const double weight = result.encoder_peak.attention_is_slower ? 2 : 1;
  speed.mixed_share = (matrix + weight * attention) / (spread.median * 1e-3) / peak;
  return speed;
}

std::string decisions_table(const DecisionsFiles& files, const DecisionsPlan& plan,
                            const DecisionsResult& result) {
  const DecisionsSample& one = result.cases[kNewImage][0];
  std::string out = fmt::format(
      "{}: {} x {}, {} view{}, {} image tokens; {} questions, {} tokens shared, {} of their own\n"
      "{} and {}, {}, {} threads; load {:.2f} before, {:.2f} after\n\n",
      files.image, result.picture.width, result.picture.height, result.picture.views.size(),
      result.picture.views.size() == 1 ? "" : "s", result.picture.n_image_tokens,
      plan.questions.size(), one.n_prefix_tokens, one.n_suffix_tokens, files.model, files.projector,
      result.identity, result.n_threads, result.load_average[0], result.load_average[1]);
  out += blocks_table(result);
  const DecisionsAgreement& a = result.agreement;
  out += fmt::format(
      "{} answers compared: {} other choices, {} with other bits, largest probability difference "
      "{}\n\n",
      a.n_answers, a.n_other_choices, a.n_other_bits, a.largest_difference);
  out += cases_table(result) + "\n";
  for (const PrefillRate& rate : result.prefill) {
    out += fmt::format(
        "prefill of {} tokens of plain text: {:.0f} tokens/s; all suffixes at that "
        "rate: {:.3f} ms\n",
        rate.n_tokens, prefill_rate(rate), suffix_ms_at(result, rate));
  }
  if (const auto speed = encoder_speed(result)) {
    out += fmt::format(
        "encoder: {:.2f} + {:.2f} GFLOP (matrices, attention) in {:.3f} ms: {:.3f} TOPS, {:.1f} % "
        "of {:.3f} TOPS ({}); best {:.1f} %; {:.1f} % with attention against half of it\n",
        1e-9 * static_cast<double>(result.encoder_matrix_ops),
        1e-9 * static_cast<double>(result.encoder_attention_ops), speed->median_ms,
        1e-12 * speed->ops_per_s, 100 * speed->share, 1e-12 * speed->ops_per_s / speed->share,
        speed->peak_name, 100 * speed->best_share, 100 * speed->mixed_share);
  }
  out += "\n";
  for (const DecisionsBar& bar : decisions_bars(result)) {
    out += fmt::format("{:<72} {:>8.3f}  wanted {} {:<4} {}\n", bar.what, bar.value,
                       bar.is_most ? "<=" : ">=", bar.bar, bar.is_met() ? "yes" : "NO");
  }
  return out;
}

}  // namespace okibi::apps
