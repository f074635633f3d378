#include "decide/picture_marks.h"

#include <fmt/format.h>

#include <charconv>

namespace okibi::decision {
namespace {

// Two bytes that UTF-8 never has enclose the number.
constexpr char kMarkByte = '\xff';

// The number of a mark that `text` begins with, and the mark's length.
std::optional<size_t> read_mark(std::string_view text, size_t* n_bytes) {
  const size_t close = text.find(kMarkByte, 1);
  if (close == std::string_view::npos) return std::nullopt;
  size_t picture = 0;
  const char* end = text.data() + close;
  const auto [read, error] = std::from_chars(text.data() + 1, end, picture);
  if (error != std::errc() || read != end) return std::nullopt;
  *n_bytes = close + 1;
  return picture;
}

}  // namespace

std::vector<TextPiece> split_at_marks(std::string_view text) {
  std::vector<TextPiece> pieces;
  size_t begin = 0;  // of the words before `at`
  size_t at = text.find(kMarkByte);
  while (at != std::string_view::npos) {
    size_t n_bytes = 1;
    const std::optional<size_t> picture = read_mark(text.substr(at), &n_bytes);
    if (picture) {
      if (at > begin) pieces.push_back({text.substr(begin, at - begin), std::nullopt});
      pieces.push_back({text.substr(at, n_bytes), picture});
      begin = at + n_bytes;
    }
    at = text.find(kMarkByte, at + n_bytes);
  }
  if (begin < text.size()) pieces.push_back({text.substr(begin), std::nullopt});
  return pieces;
}

}  // namespace okibi::decision

namespace okibi {

std::string picture_mark(size_t index) {
  return fmt::format("{}{}{}", decision::kMarkByte, index, decision::kMarkByte);
}

}  // namespace okibi
