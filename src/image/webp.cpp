// WebP through libwebp: still pictures and the first frame of animations, placed on the canvas as a
// player would show it, on white.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "image/decoders.h"

namespace okibi::image {
namespace {

struct FreeDemuxer {
  void operator()(WebPDemuxer* d) const { WebPDemuxDelete(d); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, FreeDemuxer>;

// A frame or chunk borrowed from a demuxer.
struct Frame {
  WebPIterator it = {};
  ~Frame() { WebPDemuxReleaseIterator(&it); }
};
struct Chunk {
  WebPChunkIterator it = {};
  ~Chunk() { WebPDemuxReleaseChunkIterator(&it); }
};

Status failure(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return resource_exhausted("there is no memory for decoding a WebP file");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return ends_early(Format::kWebp);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return unsupported("the WebP file uses a feature that is not read");
    default:
      return damaged(Format::kWebp);
  }
}

int32_t read_orientation(const WebPDemuxer* demuxer) {
  Chunk chunk;
  if (!WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk.it)) return 1;
  return exif_orientation({chunk.it.chunk.bytes, chunk.it.chunk.size});
}

std::string_view colour_name(const WebPBitstreamFeatures& features) {
  constexpr int kLossless = 2;
  if (features.format == kLossless) return features.has_alpha ? "lossless RGBA" : "lossless RGB";
  return features.has_alpha ? "YCbCr + alpha" : "YCbCr";
}

// Decodes the frame straight to where it belongs in rgb, or by way of RGBA when it has alpha.
Status decode_frame(const WebPIterator& frame, const WebPBitstreamFeatures& features,
                    Picture* picture) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return damaged(Format::kWebp);
  const size_t n = static_cast<size_t>(frame.width) * static_cast<size_t>(frame.height);
  const size_t stride = size_t{3} * static_cast<size_t>(picture->stored_width);
  uint8_t* const origin = picture->rgb.data() + stride * static_cast<size_t>(frame.y_offset) +
                          size_t{3} * static_cast<size_t>(frame.x_offset);
  std::vector<uint8_t> rgba(features.has_alpha ? 4 * n : 0);
  config.output.is_external_memory = 1;
  WebPRGBABuffer& buffer = config.output.u.RGBA;
  if (features.has_alpha) {
    config.output.colorspace = MODE_RGBA;
    buffer = {.rgba = rgba.data(), .stride = 4 * frame.width, .size = rgba.size()};
  } else {
    const size_t used = static_cast<size_t>(origin - picture->rgb.data());
    config.output.colorspace = MODE_RGB;
    buffer = {
        .rgba = origin, .stride = static_cast<int>(stride), .size = picture->rgb.size() - used};
  }
  const VP8StatusCode code = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  if (code != VP8_STATUS_OK) return failure(code);
  for (int y = 0; features.has_alpha && y < frame.height; ++y) {
    row_over_white(
        rgba.data() + size_t{4} * static_cast<size_t>(y) * static_cast<size_t>(frame.width),
        frame.width, origin + stride * static_cast<size_t>(y));
  }
  return ok_status();
}

}  // namespace

Result<Picture> decode_webp(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
  const WebPData data = {bytes.data(), bytes.size()};
  WebPDemuxState state;
  const Demuxer demuxer(WebPDemuxPartial(&data, &state));
  if (!demuxer) {
    return state == WEBP_DEMUX_PARSING_HEADER ? ends_early(Format::kWebp) : damaged(Format::kWebp);
  }
  if (state != WEBP_DEMUX_DONE) return ends_early(Format::kWebp);
  const uint64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const uint64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  OKIBI_RETURN_IF_ERROR(check_size(Format::kWebp, width, height, limits));

  Frame frame;
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame.it)) return damaged(Format::kWebp);
  WebPBitstreamFeatures features;
  const VP8StatusCode code =
      WebPGetFeatures(frame.it.fragment.bytes, frame.it.fragment.size, &features);
  if (code != VP8_STATUS_OK) return failure(code);
  if (features.width != frame.it.width || features.height != frame.it.height ||
      frame.it.x_offset < 0 || frame.it.y_offset < 0 ||
      static_cast<uint64_t>(frame.it.x_offset) + static_cast<uint64_t>(frame.it.width) > width ||
      static_cast<uint64_t>(frame.it.y_offset) + static_cast<uint64_t>(frame.it.height) > height) {
    return damaged(Format::kWebp);
  }

  const uint32_t flags = WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS);
  Picture picture;
  picture.format = Format::kWebp;
  picture.stored_width = static_cast<int32_t>(width);
  picture.stored_height = static_cast<int32_t>(height);
  picture.orientation = read_orientation(demuxer.get());
  picture.colour = colour_name(features);
  picture.has_alpha = features.has_alpha != 0;
  picture.is_animated = (flags & ANIMATION_FLAG) != 0;
  picture.has_icc_profile = (flags & ICCP_FLAG) != 0;
  // White where the first frame of an animation does not reach.
  picture.rgb.assign(3 * width * height, 255);
  OKIBI_RETURN_IF_ERROR(decode_frame(frame.it, features, &picture));
  return picture;
}

}  // namespace okibi::image
