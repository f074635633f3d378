// The one thing wanted from EXIF data: the orientation tag of the first directory. Every offset is
// checked; whatever is broken means "upright".
#include <cstring>

#include "image/decoders.h"

namespace okibi::image {
namespace {

constexpr uint32_t kTagOrientation = 0x0112;
constexpr uint32_t kTypeShort = 3, kTypeLong = 4;
constexpr size_t kEntryBytes = 12;

struct Tiff {
  std::span<const uint8_t> bytes;
  bool little = false;

  bool has(size_t offset, size_t n) const {
    return offset <= bytes.size() && n <= bytes.size() - offset;
  }
  uint32_t read(size_t offset, size_t n) const {  // the caller asked has()
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i) {
      value = value << 8 | bytes[offset + (little ? n - 1 - i : i)];
    }
    return value;
  }
};

}  // namespace

int32_t exif_orientation(std::span<const uint8_t> exif) {
  if (exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0) exif = exif.subspan(6);
  Tiff tiff{exif};
  if (!tiff.has(0, 8)) return 1;
  if (exif[0] == 'I' && exif[1] == 'I') {
    tiff.little = true;
  } else if (exif[0] != 'M' || exif[1] != 'M') {
    return 1;
  }
  const size_t directory = tiff.read(4, 4);
  if (tiff.read(2, 2) != 42 || !tiff.has(directory, 2)) return 1;
  const size_t n_entries = tiff.read(directory, 2);
  for (size_t i = 0; i < n_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (!tiff.has(entry, kEntryBytes)) return 1;
    if (tiff.read(entry, 2) != kTagOrientation) continue;
    const uint32_t type = tiff.read(entry + 2, 2);
    if (type != kTypeShort && type != kTypeLong) return 1;
    const uint32_t value = tiff.read(entry + 8, type == kTypeShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int32_t>(value) : 1;
  }
  return 1;
}

}  // namespace okibi::image
