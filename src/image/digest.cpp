// Digests of files and views: keys of the caches, and what `okibi inspect` shows.
#include "image/view.h"

namespace okibi::image {

Sha256 view_digest(const View& view) {
  std::array<uint8_t, 8> sides;
  for (int i = 0; i < 4; ++i) {
    sides[static_cast<size_t>(i)] =
        static_cast<uint8_t>(static_cast<uint32_t>(view.width) >> 8 * i);
    sides[static_cast<size_t>(4 + i)] =
        static_cast<uint8_t>(static_cast<uint32_t>(view.height) >> 8 * i);
  }
  Sha256Stream stream;
  stream.update(sides);
  stream.update(view.rgb);
  return stream.finish();
}

Sha256 file_digest(std::span<const uint8_t> bytes) {
  return sha256(bytes);
}

}  // namespace okibi::image
