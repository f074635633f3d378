// Places of pictures in the texts of a request (picture_mark in okibi/decision.h), found again.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "okibi/decision.h"

namespace okibi::decision {

// A run of words, or a picture's mark. `text` is what stands there, mark and all.
struct TextPiece {
  std::string_view text;
  std::optional<size_t> picture;
};
// The pieces of a text in order; none is empty. Mark bytes without their number are words.
std::vector<TextPiece> split_at_marks(std::string_view text);

}  // namespace okibi::decision
