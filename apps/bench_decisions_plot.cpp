// The plot of `okibi bench decisions`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/bench_decisions_report.h"

namespace okibi::apps {
namespace {

constexpr double kLeft = 110, kWidth = 500;
constexpr const char* kColors[] = {"#c2410c", "#1d4ed8"};  // off, on
constexpr std::array<const char*, kDecisionsTimes> kParts = {
    "", "#0f766e", "#65a30d", "#c2410c", "#a16207", "#1d4ed8", "#7c3aed", "#6b7280"};

// Every request of the blocks, one after another, on a logarithmic scale.
std::string requests_panel(const DecisionsResult& result, double top) {
  constexpr double kHeight = 190;
  size_t n = 0;
  double most = 0, least = 1e300;
  for (const DecisionsBlock& block : result.blocks) {
    for (const DecisionsSample& s : block.samples) {
      most = std::max(most, s.ms[kTotal]);
      least = std::min(least, s.ms[kTotal]);
      ++n;
    }
  }
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most));
  const auto y = [&](double ms) {
    return top + kHeight * (high - std::log10(ms)) / std::max(high - low, 1.0);
  };
  std::string out = fmt::format(
      "<text x='{}' y='{}' font-weight='bold'>milliseconds of each request</text>"
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#999'/>",
      kLeft, top - 8, kLeft, top, kWidth, kHeight);
  for (double e = low; e <= high; ++e) {
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:g}</text>", kLeft - 6,
                       y(std::pow(10, e)) + 4, std::pow(10, e));
  }
  double at = 0;
  for (const DecisionsBlock& block : result.blocks) {
    const double begin = kLeft + kWidth * at / static_cast<double>(n);
    out += fmt::format("<text x='{:.1f}' y='{}' fill='{}'>{}</text>", begin + 6, top + kHeight + 16,
                       kColors[block.is_on], block.is_on ? "reuse on" : "reuse off");
    for (const DecisionsSample& s : block.samples) {
      out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>",
                         kLeft + kWidth * (at + 0.5) / static_cast<double>(n), y(s.ms[kTotal]),
                         kColors[block.is_on]);
      ++at;
    }
  }
  return out;
}

// A bar per case, cut into what its time went to.
std::string cases_panel(const DecisionsResult& result, double top) {
  constexpr double kBar = 22, kStep = 34;
  double most = 0;
  for (const auto& samples : result.cases) {
    most = std::max(most, median_of(times_of(samples, kTotal)));
  }
  std::string out =
      fmt::format("<text x='{}' y='{}' font-weight='bold'>where the time of a case goes, ms</text>",
                  kLeft, top - 8);
  for (size_t c = 0; c < kDecisionsCases; ++c) {
    const double y = top + kStep * static_cast<double>(c);
    double x = kLeft;
    for (size_t t = kDecode; t < kDecisionsTimes; ++t) {
      const double ms = median_of(times_of(result.cases[c], static_cast<DecisionsTime>(t)));
      const double width = 0.85 * kWidth * std::max(ms, 0.0) / most;
      out += fmt::format("<rect x='{:.1f}' y='{}' width='{:.2f}' height='{}' fill='{}'/>", x, y,
                         width, kBar, kParts[t]);
      x += width;
    }
    out += fmt::format(
        "<text x='{}' y='{}' text-anchor='end'>{}</text><text x='{:.1f}' y='{}'>{:.4g}</text>",
        kLeft - 6, y + 15, kDecisionsCaseNames[c], x + 5, y + 15,
        median_of(times_of(result.cases[c], kTotal)));
  }
  double x = kLeft;
  for (size_t t = kDecode; t < kDecisionsTimes; ++t, x += 72) {
    const double y = top + kStep * kDecisionsCases;
    out += fmt::format(
        "<rect x='{}' y='{}' width='10' height='10' fill='{}'/><text x='{}' y='{}'>{}</text>", x, y,
        kParts[t], x + 13, y + 9, kDecisionsTimeNames[t]);
  }
  return out;
}

}  // namespace

std::string decisions_svg(const DecisionsFiles& files, const DecisionsResult& result) {
  std::string out =
      "<svg xmlns='http://www.w3.org/2000/svg' width='640' height='490' font-family='sans-serif' "
      "font-size='12'><rect width='640' height='490' fill='white'/>";
  out += fmt::format("<text x='{}' y='22'>{}, {} on {}</text>", kLeft, files.image, files.model,
                     machine_name());
  return out + requests_panel(result, 60) + cases_panel(result, 315) + "</svg>\n";
}

}  // namespace okibi::apps
