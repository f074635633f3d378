// From picture to views: which pieces of a picture the model looks at, how many image tokens each
// takes, and their pixels. A view is one encoder sequence; a picture is one view, or a grid of
// tiles and mostly a thumbnail. Numbers follow the reference processor bit for bit. Does not decode
// (picture.h), does not normalise or cut patches (that is the encoder's). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "image/picture.h"
#include "okibi/status.h"

namespace okibi::image {

// What the model sees of a picture (or part of it) after resizing.
struct View {
  int32_t width = 0, height = 0;  // multiples of patch * factor
  std::vector<uint8_t> rgb;       // row-major, 3 * width * height
};

// From the model's files; the defaults are those of LFM2.5-VL.
struct ViewParams {
  enum class Resample { kBilinear, kBicubic };

  int32_t min_tokens = 64, max_tokens = 256;  // of a view that is not a tile
  int32_t patch = 16;                         // px, side of an encoder patch
  int32_t factor = 2;                         // patches per image token, along each side
  int32_t tile = 512;                         // px, side of a tile
  int32_t min_tiles = 2, max_tiles = 10;      // columns * rows of a tiled picture
  double tolerance = 2.0;                     // tiled from this many times max_tokens on
  bool thumbnail = true;                      // tiles are followed by the whole picture
  bool split = true;                          // tiling allowed at all
  Resample resample = Resample::kBilinear;
};

struct ViewPlan {
  int32_t source_width = 0, source_height = 0;  // the picture this plan is for
  bool tiled = false;
  int32_t columns = 1, rows = 1;                // of the tile grid
  int32_t canvas_width = 0, canvas_height = 0;  // the picture stretched under the grid; 0 if !tiled
  bool has_thumbnail = false;
  int32_t view_width = 0, view_height = 0;  // the single view, or the thumbnail (0 if none)
  std::vector<int32_t> tokens;              // image tokens of each view, in their order

  int32_t n_views() const { return static_cast<int32_t>(tokens.size()); }
  int32_t n_image_tokens() const;   // all views together
  int32_t n_prompt_tokens() const;  // with start, end, row/column and thumbnail markers
  bool operator==(const ViewPlan&) const = default;
};

// Sizes are in pixels of the upright picture. Fails for sizes below 1, above 2^20 or thinner than
// 200:1, and for parameters that make no sense.
Result<ViewPlan> plan_views(int32_t width, int32_t height, const ViewParams& params);

// The pixels of a plan made for this picture's size: tiles row by row, the thumbnail last.
Result<std::vector<View>> make_views(const Picture& picture, const ViewPlan& plan,
                                     const ViewParams& params);

// Identity of what the encoder will see: SHA-256 over width and height (little-endian 32 bits each)
// and the pixels. Equal bytes with swapped sides differ.
Sha256 view_digest(const View& view);
// Identity of a picture file: SHA-256 over its bytes.
Sha256 file_digest(std::span<const uint8_t> bytes);

}  // namespace okibi::image
