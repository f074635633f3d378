// How far a long piece of work has come, on standard error: a bar that redraws itself where that is
// a terminal, a line at every tenth where it is not. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace okibi::apps {

class Progress {
 public:
  // `unit_bytes`: the total is bytes and shown as MiB; otherwise it is a count.
  Progress(std::string title, uint64_t total, bool unit_bytes);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` names what is worked on; shown on terminals only.
  void update(uint64_t done, std::string_view detail);
  // Clears the bar so that other output can be printed.
  void clear();

 private:
  void draw(double share, uint64_t done, std::string_view detail);

  std::string title_;
  uint64_t total_;
  bool unit_bytes_;
  bool is_terminal_;
  bool is_drawn_ = false;
  int last_tenth_ = 0;
  double start_s_, last_draw_s_ = -1;
};

}  // namespace okibi::apps
