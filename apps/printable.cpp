// See printable.h.
#include "apps/printable.h"

#include <fmt/format.h>

namespace okibi::apps {
namespace {

// Bytes of the well-formed UTF-8 character at the start of `text` that is safe to print; 0 if there
// is none.
size_t safe_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f && lead != '\\' ? 1 : 0;
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < n) return 0;
  uint32_t code = lead & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_direction_mark =
      (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  if (code < kSmallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) || code < 0xa0 ||
      is_direction_mark) {
    return 0;
  }
  return n;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const std::string_view rest = text.substr(at);
    if (const size_t n = safe_character(rest); n > 0) {
      out += rest.substr(0, n);
      at += n;
      continue;
    }
    const char c = rest[0];
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    ++at;
  }
  if (at < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string count_text(uint64_t n) {
  const double value = static_cast<double>(n);
  if (n < 10'000) return fmt::format("{}", n);
  if (n < 1'000'000) return fmt::format("{:.1f} K", value / 1e3);
  if (n < 1'000'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{:.2f} B", value / 1e9);
}

}  // namespace okibi::apps
