// See progress.h.
#include "apps/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace okibi::apps {

Progress::Progress(std::string title, uint64_t total, bool unit_bytes)
    : title_(std::move(title)),
      total_(total),
      unit_bytes_(unit_bytes),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_s_(seconds_now()) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (is_drawn_) fmt::print(stderr, "\r\033[K");
  is_drawn_ = false;
}

void Progress::update(uint64_t done, std::string_view detail) {
  const double share = total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
  if (is_terminal_) {
    const double now = seconds_now();
    if (now - last_draw_s_ < 0.1 && done < total_) return;
    last_draw_s_ = now;
    draw(share, done, detail);
    return;
  }
  const int tenth = static_cast<int>(share * 10);
  if (tenth <= last_tenth_) return;
  last_tenth_ = tenth;
  fmt::print(stderr, "{}: {} %\n", title_, tenth * 10);
}

void Progress::draw(double share, uint64_t done, std::string_view detail) {
  constexpr int kWidth = 30;
  constexpr double kMiB = 1 << 20;
  const int filled = static_cast<int>(share * kWidth);
  const double elapsed = seconds_now() - start_s_;
  std::string amount = unit_bytes_
                           ? fmt::format("{:.0f}/{:.0f} MiB", static_cast<double>(done) / kMiB,
                                         static_cast<double>(total_) / kMiB)
                           : fmt::format("{}/{}", done, total_);
  if (share > 0.02 && share < 1) {
    amount += fmt::format(", {:.0f} s left", elapsed / share * (1 - share));
  }
  fmt::print(stderr, "\r{} [{}{}] {:3.0f} % {} {:.40}\033[K", title_, std::string(filled, '='),
             std::string(kWidth - filled, ' '), share * 100, amount, detail);
  std::fflush(stderr);
  is_drawn_ = true;
}

}  // namespace okibi::apps
