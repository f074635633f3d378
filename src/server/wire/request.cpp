#include "server/wire/request.h"

#include <fmt/format.h>

#include <charconv>

namespace okibi::server {

std::string image_mark(size_t image) {
  return fmt::format("{}{}{}", kMarkByte, image, kMarkByte);
}

std::vector<Piece> split_marks(std::string_view text) {
  std::vector<Piece> pieces;
  while (!text.empty()) {
    const size_t open = text.find(kMarkByte);
    if (open != 0) pieces.push_back({.text = text.substr(0, open)});
    if (open == std::string_view::npos) break;
    const size_t close = text.find(kMarkByte, open + 1);
    if (close == std::string_view::npos) break;
    int image = -1;
    std::from_chars(text.data() + open + 1, text.data() + close, image);
    pieces.push_back({.image = image});
    text.remove_prefix(close + 1);
  }
  return pieces;
}

}  // namespace okibi::server
