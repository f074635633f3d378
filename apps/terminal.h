// What commands show people: sizes and times in words, and Ctrl-C as a flag. All of
// it goes to standard error; standard output belongs to results.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "okibi/status.h"

namespace okibi::apps {

bool is_terminal(std::FILE* file);

// From now on the first Ctrl-C sets the flag and interrupts a blocking read; a second one, while
// the flag is still set, ends the process. Commands clear the flag when they have dealt with it.
std::atomic<bool>& catch_interrupts();

// What shells report for a program that Ctrl-C ended.
constexpr int kExitInterrupted = 130;

std::string format_bytes(uint64_t n_bytes);  // "93.8 MiB"
std::string format_seconds(double seconds);  // "0.42 s", "3 min 05 s"
std::string format_rate(double per_second);  // "812", "43.7"

// All of a file, or of standard input for "-". Broken UTF-8 becomes U+FFFD.
Result<std::string> read_text(const std::string& path);
// The same as it is, for files that hold no text.
Result<std::string> read_bytes(const std::string& path);
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace okibi::apps
