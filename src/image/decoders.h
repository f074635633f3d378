// What the three file formats share: the decoders decode_picture() chooses from, the checks each
// makes on its header, and the steps from stored samples to upright RGB. Internal to src/image.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "image/picture.h"
#include "okibi/status.h"

namespace okibi::image {

// Each fills everything of Picture but width, height and the upright order of rgb: pixels stay as
// stored until orient_upright().
Result<Picture> decode_png(std::span<const uint8_t> bytes, const DecodeLimits& limits);
Result<Picture> decode_jpeg(std::span<const uint8_t> bytes, const DecodeLimits& limits);
Result<Picture> decode_webp(std::span<const uint8_t> bytes, const DecodeLimits& limits);

// For sizes a header declares: at least one pixel, and within the limits.
Status check_size(Format format, uint64_t width, uint64_t height, const DecodeLimits& limits);
// The two sentences for broken files.
Status ends_early(Format format);
Status damaged(Format format);

// Orientation 1..8 in EXIF data (a TIFF header, with or without "Exif\0\0" before it); 1 where it
// says nothing usable.
int32_t exif_orientation(std::span<const uint8_t> exif);

// Turns stored pixels upright by picture->orientation, and sets width and height.
void orient_upright(Picture* picture);

// One row of n pixels over white, rounded once: 8-bit RGBA, and host-endian 16-bit RGBA whose
// result is also reduced to 8 bits (x / 257).
void row_over_white(const uint8_t* rgba, int32_t n, uint8_t* rgb);
void row16_over_white(const uint16_t* rgba, int32_t n, uint8_t* rgb);

}  // namespace okibi::image
