// How far a long piece of work has come, on standard error: a bar with rate and time left that
// redraws itself where that is a terminal, a line with both at every tenth where it is not. Nothing
// is shown for work that is over in a moment, and the bar is erased at the end. One thread at a
// time.
#pragma once

#include <string>
#include <string_view>

namespace okibi::apps {

class Progress {
 public:
  // `unit`: what is counted ("tokens", "MiB"); empty for a bare percentage.
  Progress(std::string label, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` names what is worked on; shown on terminals only.
  void update(double done, double total, std::string_view detail = {});
  // Erases the bar so that other output can be printed; the next update draws it again.
  void clear();
  // Erases the bar for good.
  void finish();

 private:
  std::string rate_and_rest(double done, double total, double elapsed) const;
  void draw(double done, double total, double elapsed, std::string_view detail) const;

  std::string label_, unit_;
  double start_ = 0, last_drawn_ = 0;
  int last_tenth_ = 0;
  bool is_terminal_, is_finished_ = false, is_visible_ = false;
};

}  // namespace okibi::apps
