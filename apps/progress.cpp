#include "apps/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/terminal.h"
#include "base/clock.h"

namespace okibi::apps {
namespace {

// Shorter work shows nothing; a log should not fill with lines that nobody waits for.
constexpr double kSecondsUntilShown = 0.5, kSecondsUntilLines = 5;
constexpr double kSecondsBetweenDraws = 0.1;

}  // namespace

Progress::Progress(std::string label, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      start_(seconds_now()),
      is_terminal_(is_terminal(stderr)) {}

Progress::~Progress() {
  finish();
}

void Progress::update(double done, double total, std::string_view detail) {
  const double now = seconds_now();
  const double elapsed = now - start_;
  if (is_finished_ || total <= 0 ||
      elapsed < (is_terminal_ ? kSecondsUntilShown : kSecondsUntilLines)) {
    return;
  }
  if (!is_terminal_) {
    const int tenth = static_cast<int>(std::clamp(done / total, 0.0, 1.0) * 10);
    if (tenth <= last_tenth_) return;
    last_tenth_ = tenth;
    fmt::print(stderr, "{}: {} %{}\n", label_, tenth * 10, rate_and_rest(done, total, elapsed));
    return;
  }
  if (now - last_drawn_ < kSecondsBetweenDraws) return;
  last_drawn_ = now;
  is_visible_ = true;
  draw(done, total, elapsed, detail);
}

std::string Progress::rate_and_rest(double done, double total, double elapsed) const {
  std::string text;
  if (!unit_.empty()) {
    text = fmt::format("  {:.0f}/{:.0f} {}, {}/s", done, total, unit_, format_rate(done / elapsed));
  }
  if (done > 0) {
    text += fmt::format(", {} left", format_seconds(elapsed * (total - done) / done));
  }
  return text;
}

void Progress::draw(double done, double total, double elapsed, std::string_view detail) const {
  constexpr size_t kWidth = 24;
  const double share = std::clamp(done / total, 0.0, 1.0);
  const auto n_full = static_cast<size_t>(share * kWidth);
  std::string line = fmt::format("\r{} [{}{}] {:3.0f} %", label_, std::string(n_full, '#'),
                                 std::string(kWidth - n_full, '.'), share * 100);
  line += rate_and_rest(done, total, elapsed);
  if (!detail.empty()) line += fmt::format("  {:.32}", detail);
  std::fprintf(stderr, "%s\x1b[K", line.c_str());
  std::fflush(stderr);
}

void Progress::clear() {
  if (is_visible_) std::fputs("\r\x1b[K", stderr);
  is_visible_ = false;
}

void Progress::finish() {
  clear();
  is_finished_ = true;
}

}  // namespace okibi::apps
