// A picture file as pixels: what decode_picture() makes of PNG, JPEG and WebP bytes. The bytes are
// hostile until they passed here; after it the type carries the proof (width * height * 3 bytes of
// rgb). Does not resize (resize.h) and does not know what a model wants (view.h). No shared state:
// any number of threads may decode at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "okibi/status.h"

namespace okibi::image {

// Checked on the header, before any pixel is decoded or any memory of that size is asked for.
struct DecodeLimits {
  uint64_t max_file_bytes = 32ull << 20;
  int32_t max_side = 32768;           // px, of the stored picture
  uint64_t max_pixels = 64ull << 20;  // of the stored picture (and of an animation's canvas)
  int32_t max_aspect = 200;           // long side : short side
};

enum class Format { kPng, kJpeg, kWebp };
std::string_view name_of(Format format);
// By the first twelve bytes, never by a name or a declared type; nothing when it is none of these.
std::optional<Format> sniff_format(std::span<const uint8_t> bytes);

struct Picture {
  int32_t width = 0, height = 0;  // upright
  std::vector<uint8_t> rgb;       // row-major, 3 * width * height; alpha is composited on white

  // What the file said, for people who ask what became of it.
  Format format = Format::kPng;
  int32_t stored_width = 0, stored_height = 0;  // before orientation
  int32_t orientation = 1;                      // EXIF 1..8; 1 = stored upright
  std::string_view colour;                      // static text: "palette", "grey", "YCCK", ...
  int32_t bits = 8;                             // per sample, as stored
  bool is_progressive = false;                  // progressive JPEG, interlaced PNG
  bool has_alpha = false;                       // the file carries transparency of any kind
  bool is_animated = false;                     // the first frame was taken
  bool has_icc_profile = false;                 // present, ignored
};

// Errors are one sentence of ours: kBadData for damaged bytes, kUnsupported for kinds that are not
// read, kResourceExhausted for what exceeds a size limit, kInvalidArgument for what is too thin.
// They never quote the decoder or the file.
Result<Picture> decode_picture(std::span<const uint8_t> bytes, const DecodeLimits& limits = {});

}  // namespace okibi::image
