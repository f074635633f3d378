// From stored samples to upright opaque RGB: compositing on white, and the eight EXIF orientations.
#include <algorithm>
#include <utility>

#include "image/decoders.h"

namespace okibi::image {
namespace {

// Turned pictures read columns; a block this wide and high stays in the first-level cache.
constexpr int64_t kBlock = 32;

}  // namespace

void row_over_white(const uint8_t* rgba, int32_t n, uint8_t* rgb) {
  for (int32_t i = 0; i < n; ++i, rgba += 4, rgb += 3) {
    const uint32_t alpha = rgba[3], white = 255 * (255 - alpha) + 127;
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((rgba[c] * alpha + white) / 255);
  }
}

void row16_over_white(const uint16_t* rgba, int32_t n, uint8_t* rgb) {
  constexpr uint64_t kFull = 65535, kScale = kFull * 257;
  for (int32_t i = 0; i < n; ++i, rgba += 4, rgb += 3) {
    const uint64_t alpha = rgba[3], white = kFull * (kFull - alpha) + kScale / 2;
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((rgba[c] * alpha + white) / kScale);
  }
}

void orient_upright(Picture* picture) {
  const int64_t w = picture->stored_width, h = picture->stored_height;
  const int32_t o = picture->orientation;
  const bool turned = o >= 5;  // columns of the file become rows
  const int64_t width = turned ? h : w, height = turned ? w : h;
  picture->width = static_cast<int32_t>(width);
  picture->height = static_cast<int32_t>(height);
  if (o == 1) return;

  // The stored pixel under upright (x, y) is origin + x * dx + y * dy.
  const bool from_right = o == 2 || o == 3 || o == 7 || o == 8;
  const bool from_bottom = o == 3 || o == 4 || o == 6 || o == 7;
  const int64_t step_column = from_right ? -1 : 1, step_row = from_bottom ? -w : w;
  const int64_t origin = (from_right ? w - 1 : 0) + (from_bottom ? (h - 1) * w : 0);
  const int64_t dx = turned ? step_row : step_column, dy = turned ? step_column : step_row;

  std::vector<uint8_t> upright(picture->rgb.size());
  for (int64_t y0 = 0; y0 < height; y0 += kBlock) {
    for (int64_t x0 = 0; x0 < width; x0 += kBlock) {
      const int64_t x1 = std::min(x0 + kBlock, width), y1 = std::min(y0 + kBlock, height);
      for (int64_t y = y0; y < y1; ++y) {
        uint8_t* out = upright.data() + 3 * (y * width + x0);
        const uint8_t* in = picture->rgb.data() + 3 * (origin + x0 * dx + y * dy);
        for (int64_t x = x0; x < x1; ++x, out += 3, in += 3 * dx) {
          out[0] = in[0];
          out[1] = in[1];
          out[2] = in[2];
        }
      }
    }
  }
  picture->rgb = std::move(upright);
}

}  // namespace okibi::image
