// Text from files, made safe and short enough for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace okibi::apps {

// Well-formed UTF-8 stays; control characters (also C1, which terminals obey) and broken bytes
// become \n, \t or \xNN. At most about `max_bytes` of the input are shown.
std::string printable(std::string_view text, size_t max_bytes);

// "960", "134.5 M", "1.12 B".
std::string count_text(uint64_t n);

}  // namespace okibi::apps
