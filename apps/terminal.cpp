// See terminal.h.
#include "apps/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "tokenizer/tokenizer.h"

namespace okibi::apps {
namespace {

std::atomic<bool> g_interrupted{false};  // the one global: a signal handler has no other place
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may touch nothing else");

void on_interrupt(int signal_number) {
  if (g_interrupted.exchange(true)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

}  // namespace

bool is_terminal(std::FILE* file) {
  return isatty(fileno(file)) == 1;
}

std::atomic<bool>& catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for the user must return
  sigaction(SIGINT, &action, nullptr);
  return g_interrupted;
}

std::string format_bytes(uint64_t n_bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(n_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} bytes", n_bytes)
                   : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string format_rate(double per_second) {
  return per_second < 100 ? fmt::format("{:.1f}", per_second) : fmt::format("{:.0f}", per_second);
}

Result<std::string> read_bytes(const std::string& path) {
  const bool is_stdin = path == "-";
  std::FILE* file = is_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return not_found(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  std::string bytes;
  char buffer[1 << 16];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof(buffer), file)) > 0) bytes.append(buffer, n);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  if (!is_stdin) std::fclose(file);
  if (failed) return unavailable(fmt::format("{}: reading failed: {}", path, std::strerror(error)));
  return bytes;
}

Result<std::string> read_text(const std::string& path) {
  OKIBI_ASSIGN_OR_RETURN(const std::string bytes, read_bytes(path));
  return tokenizer::replace_invalid_utf8(bytes);
}

Status write_file(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool done = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) done = (std::fclose(file) == 0) && done;
  if (done) return ok_status();
  return unavailable(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace okibi::apps
