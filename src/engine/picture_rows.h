// Rows of pictures among tokens: what stands where, as sessions and decisions ask for it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "okibi/picture.h"

namespace okibi::engine {

// Beside the tokens at positions [first, first + n): the picture's row, or null. Empty when no
// picture is there.
void list_embeddings(std::span<const Prompt::Rows> rows, size_t first, size_t n,
                     std::vector<const float*>* embeddings);

// The first position at which one has a picture's view and the other has not the same one there;
// SIZE_MAX when there is none.
size_t first_row_difference(std::span<const Prompt::Rows> a, std::span<const Prompt::Rows> b);

}  // namespace okibi::engine
