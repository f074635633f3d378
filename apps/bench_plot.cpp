// The plot of `bench`: tokens per second against depth.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/bench_report.h"

namespace okibi::apps {
namespace {

constexpr double kLeft = 70, kWidth = 540, kHeight = 170;
constexpr const char* kColors[] = {"#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#525252"};

// One set's speeds at one depth: rows of several A-B-B-A together.
struct Point {
  std::vector<double> medians;
  double slowest = 0, fastest = 0, limit = 0;  // tokens/s
};
using Curve = std::map<uint32_t, Point>;

Curve curve_of(const BenchResult& result, BenchTest test, const std::string& set,
               const ops::Roofs& roofs) {
  Curve curve;
  const BenchRow* shallowest = nullptr;
  for (const BenchRow& row : result.rows) {
    if (row.test != test || row.set != set) continue;
    if (shallowest == nullptr || row.depth < shallowest->depth) shallowest = &row;
    Point& point = curve[row.depth];
    const double slow = row.n_tokens / row.max_s, fast = row.n_tokens / row.min_s;
    point.slowest = point.medians.empty() ? slow : std::min(point.slowest, slow);
    point.fastest = std::max(point.fastest, fast);
    point.limit = 1 / limit_of_depth(*shallowest, row, roofs);
    point.medians.push_back(row.tokens_per_s);
  }
  return curve;
}

// Depths on a logarithmic axis; 0 stands one step of four before the shallowest.
class DepthAxis {
 public:
  explicit DepthAxis(const std::vector<uint32_t>& depths) {
    uint32_t first = 0;
    for (uint32_t d : depths) {
      if (first == 0) first = d;
    }
    zero_ = std::max(1.0, first / 4.0);
    low_ = std::log2(depths.front() == 0 ? zero_ : first);
    high_ = std::max(low_ + 1, std::log2(std::max<double>(depths.back(), zero_)));
  }
  double operator()(uint32_t depth) const {
    const double at = std::log2(depth == 0 ? zero_ : static_cast<double>(depth));
    return kLeft + kWidth * (at - low_) / (high_ - low_);
  }

 private:
  double zero_ = 1, low_ = 0, high_ = 1;
};

std::string depth_label(uint32_t depth) {
  constexpr uint32_t kKi = 1024, kMi = 1024 * 1024;
  if (depth >= kMi && depth % kMi == 0) return fmt::format("{}m", depth / kMi);
  if (depth >= kKi && depth % kKi == 0) return fmt::format("{}k", depth / kKi);
  return fmt::format("{}", depth);
}

std::string svg_curve(const Curve& curve, const DepthAxis& x, double top, double most,
                      const char* color) {
  const auto y = [&](double rate) { return top + kHeight * (1 - rate / (1.1 * most)); };
  std::string out, points, limits;
  for (const auto& [depth, point] : curve) {
    const double rate = median_of(point.medians);
    points += fmt::format("{:.1f},{:.1f} ", x(depth), y(rate));
    limits += fmt::format("{:.1f},{:.1f} ", x(depth), y(point.limit));
    out += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/>"
        "<circle cx='{0:.1f}' cy='{4:.1f}' r='3' fill='{3}'/>",
        x(depth), y(point.slowest), y(point.fastest), color, y(rate));
  }
  out += fmt::format("<polyline points='{}' fill='none' stroke='{}'/>", points, color);
  out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-dasharray='4 3'/>",
                     limits, color);
  return out;
}

// One panel: tokens/s of one test against depth.
std::string svg_panel(const BenchPlan& plan, const BenchResult& result, BenchTest test,
                      double top) {
  std::vector<Curve> curves;
  double most = 0;
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    curves.push_back(curve_of(result, test, plan.sets[s].label, result.roofs[s]));
    for (const auto& [depth, point] : curves.back()) {
      most = std::max({most, point.fastest, point.limit});
    }
  }
  if (most == 0) return "";
  const DepthAxis x(plan.depths);
  const auto y = [&](double rate) { return top + kHeight * (1 - rate / (1.1 * most)); };
  std::string out = fmt::format(
      "<text x='{}' y='{}' font-weight='bold'>{} tokens/s</text>"
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#999'/>",
      kLeft, top - 8, test == BenchTest::kPrefill ? "prefill" : "decode", kLeft, top, kWidth,
      kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double rate = most * i / 4;
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:.{}f}</text>", kLeft - 6,
                       y(rate) + 4, rate, most < 20 ? 1 : 0);
  }
  for (uint32_t depth : plan.depths) {
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>", x(depth),
                       top + kHeight + 16, depth_label(depth));
  }
  for (size_t s = 0; s < curves.size(); ++s) {
    if (curves[s].empty()) continue;
    const char* color = kColors[s % std::size(kColors)];
    out += svg_curve(curves[s], x, top, most, color);
    out += fmt::format("<text x='{}' y='{}' fill='{}'>{}</text>", kLeft + 8,
                       top + kHeight - 8 - 15 * static_cast<double>(curves.size() - 1 - s), color,
                       plan.sets[s].label);
  }
  return out;
}

}  // namespace

std::string bench_svg(const BenchContext& context, const BenchPlan& plan,
                      const BenchResult& result) {
  std::string out =
      "<svg xmlns='http://www.w3.org/2000/svg' width='640' height='520' font-family='sans-serif' "
      "font-size='12'><rect width='640' height='520' fill='white'/>";
  out += fmt::format("<text x='70' y='22'>{} on {}{}</text>", context.model_file, context.machine,
                     plan.fill == BenchFill::kRandom ? ", filled with random context" : "");
  out += svg_panel(plan, result, BenchTest::kPrefill, 60);
  out += svg_panel(plan, result, BenchTest::kDecode, 300);
  out +=
      "<text x='340' y='506' text-anchor='middle'>depth (tokens of context before); dashed: if "
      "only what depth adds took time, at the roof</text></svg>";
  return out + "\n";
}

}  // namespace okibi::apps
