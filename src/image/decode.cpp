// Chooses the decoder by the first bytes and words the errors that the formats share.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "image/decoders.h"

namespace okibi::image {
namespace {

bool has_bytes_at(std::span<const uint8_t> bytes, size_t offset, std::string_view text) {
  return bytes.size() >= offset + text.size() &&
         std::memcmp(bytes.data() + offset, text.data(), text.size()) == 0;
}

// A name for formats people send that are not read here, so that the error helps.
std::string_view known_stranger(std::span<const uint8_t> bytes) {
  if (has_bytes_at(bytes, 0, "GIF8")) return "a GIF file";
  if (has_bytes_at(bytes, 0, "BM")) return "a BMP file";
  if (has_bytes_at(bytes, 0, std::string_view("II*\0", 4)) ||
      has_bytes_at(bytes, 0, std::string_view("MM\0*", 4))) {
    return "a TIFF file";
  }
  if (has_bytes_at(bytes, 4, "ftypavif") || has_bytes_at(bytes, 4, "ftypavis")) {
    return "an AVIF file";
  }
  if (has_bytes_at(bytes, 4, "ftyp")) return "a HEIC or video file";
  if (has_bytes_at(bytes, 0, "\xff\x0a") || has_bytes_at(bytes, 4, "JXL ")) return "a JPEG XL file";
  if (has_bytes_at(bytes, 0, "%PDF")) return "a PDF file";
  if (has_bytes_at(bytes, 0, "<svg") || has_bytes_at(bytes, 0, "<?xml"))
    return "an SVG or XML file";
  return "of no known picture format";
}

}  // namespace

std::optional<Format> sniff_format(std::span<const uint8_t> bytes) {
  if (has_bytes_at(bytes, 0, std::string_view("\x89PNG\r\n\x1a\n", 8))) return Format::kPng;
  if (has_bytes_at(bytes, 0, "\xff\xd8\xff")) return Format::kJpeg;
  if (has_bytes_at(bytes, 0, "RIFF") && has_bytes_at(bytes, 8, "WEBP")) return Format::kWebp;
  return std::nullopt;
}

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kPng:
      return "PNG";
    case Format::kJpeg:
      return "JPEG";
    case Format::kWebp:
      return "WebP";
  }
  return "?";
}

Status ends_early(Format format) {
  return bad_data(fmt::format("the {} file ends before its picture does", name_of(format)));
}

Status damaged(Format format) {
  return bad_data(fmt::format("the {} file is damaged", name_of(format)));
}

Status check_size(Format format, uint64_t width, uint64_t height, const DecodeLimits& limits) {
  const auto declared = [&] {
    return fmt::format("the {} picture is {} x {} pixels", name_of(format), width, height);
  };
  if (width == 0 || height == 0) return bad_data(declared() + "; it has no pixels");
  const uint64_t longer = std::max(width, height), shorter = std::min(width, height);
  if (longer > static_cast<uint64_t>(limits.max_side)) {
    return resource_exhausted(
        fmt::format("{}; the longest side allowed is {}", declared(), limits.max_side));
  }
  if (width * height > limits.max_pixels) {  // both are below 2^31 here
    return resource_exhausted(fmt::format("{}, {} in all; at most {} are allowed", declared(),
                                          width * height, limits.max_pixels));
  }
  if (longer > shorter * static_cast<uint64_t>(limits.max_aspect)) {
    return invalid_argument(
        fmt::format("{}; pictures thinner than {}:1 are not read", declared(), limits.max_aspect));
  }
  return ok_status();
}

Result<Picture> decode_picture(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
  if (bytes.empty()) return bad_data("the picture is empty: 0 bytes");
  if (bytes.size() > limits.max_file_bytes) {
    return resource_exhausted(fmt::format("the picture file has {} bytes; at most {} are allowed",
                                          bytes.size(), limits.max_file_bytes));
  }
  const std::optional<Format> format = sniff_format(bytes);
  if (!format) {
    return unsupported(
        fmt::format("the picture is {}; PNG, JPEG and WebP are read", known_stranger(bytes)));
  }
  Result<Picture> picture = *format == Format::kPng    ? decode_png(bytes, limits)
                            : *format == Format::kJpeg ? decode_jpeg(bytes, limits)
                                                       : decode_webp(bytes, limits);
  if (picture.ok()) orient_upright(&*picture);
  return picture;
}

}  // namespace okibi::image
