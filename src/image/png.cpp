// PNG through libspng. The chunks are walked here first: sizes and facts are known and checked
// before a decoder exists, and libspng is fed the critical chunks and tRNS only, so that profiles,
// texts and other compressed extras of a hostile file are never unpacked.
#include <spng.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "image/decoders.h"

namespace okibi::image {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkOverhead = 12;  // length, type, CRC
constexpr size_t kHeaderBytes = 13;    // of IHDR
// Deflate cannot do better than 258 bytes from 2 bits; a file too small for its declared pixels is
// refused before they are allocated.
constexpr uint64_t kMaxDeflateRatio = 1032;

struct Chunks {
  std::vector<std::span<const uint8_t>> kept;  // what the decoder reads, signature first
  uint32_t width = 0, height = 0;
  uint8_t depth = 0, colour = 0, interlace = 0;
  uint64_t n_data = 0;  // compressed bytes
  bool has_trns = false, has_icc = false, is_animated = false;
  int32_t orientation = 1;
};

uint32_t big_endian_32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

bool is_type(const uint8_t* type, const char* name) {
  return std::memcmp(type, name, 4) == 0;
}

void keep(Chunks* chunks, std::span<const uint8_t> bytes) {
  auto& kept = chunks->kept;
  if (!kept.empty() && kept.back().data() + kept.back().size() == bytes.data()) {
    kept.back() = {kept.back().data(), kept.back().size() + bytes.size()};
  } else {
    kept.push_back(bytes);
  }
}

void note_header(Chunks* chunks, const uint8_t* body) {
  chunks->width = big_endian_32(body);
  chunks->height = big_endian_32(body + 4);
  chunks->depth = body[8];
  chunks->colour = body[9];
  chunks->interlace = body[12];
}

void note_extra(Chunks* chunks, const uint8_t* type, std::span<const uint8_t> body) {
  if (is_type(type, "eXIf")) chunks->orientation = exif_orientation(body);
  if (is_type(type, "iCCP")) chunks->has_icc = true;
  if (is_type(type, "acTL") && body.size() >= 4)
    chunks->is_animated = big_endian_32(body.data()) > 1;
}

Result<Chunks> walk_chunks(std::span<const uint8_t> bytes) {
  Chunks chunks;
  chunks.kept.push_back(bytes.first(kSignatureBytes));
  size_t at = kSignatureBytes;
  for (bool first = true;; first = false) {
    if (bytes.size() - at < kChunkOverhead) return ends_early(Format::kPng);
    const uint64_t n = big_endian_32(bytes.data() + at);
    const uint8_t* type = bytes.data() + at + 4;
    if (n > bytes.size() - at - kChunkOverhead) return ends_early(Format::kPng);
    const auto whole = bytes.subspan(at, n + kChunkOverhead);
    const auto body = whole.subspan(8, n);
    if (first != is_type(type, "IHDR")) return damaged(Format::kPng);
    if (first) {
      if (n != kHeaderBytes) return damaged(Format::kPng);
      note_header(&chunks, body.data());
    }
    if (is_type(type, "tRNS")) chunks.has_trns = true;
    if (is_type(type, "IDAT")) chunks.n_data += n;
    const bool is_critical = (type[0] & 0x20) == 0;
    if (is_critical || is_type(type, "tRNS")) {
      keep(&chunks, whole);
    } else {
      note_extra(&chunks, type, body);
    }
    at += whole.size();
    if (is_type(type, "IEND")) return chunks;
  }
}

Status check_header(const Chunks& c, const DecodeLimits& limits) {
  OKIBI_RETURN_IF_ERROR(check_size(Format::kPng, c.width, c.height, limits));
  constexpr int kSamples[7] = {1, 0, 3, 1, 2, 0, 4};
  const int n_samples = c.colour < 7 ? kSamples[c.colour] : 0;
  if (n_samples == 0 || c.depth == 0 || c.depth > 16) return damaged(Format::kPng);
  const uint64_t n_raw =
      uint64_t{c.width} * c.height * static_cast<uint64_t>(n_samples * c.depth) / 8;
  if (n_raw / kMaxDeflateRatio > c.n_data) return ends_early(Format::kPng);
  return ok_status();
}

std::string_view colour_name(uint8_t colour) {
  switch (colour) {
    case SPNG_COLOR_TYPE_GRAYSCALE:
      return "grey";
    case SPNG_COLOR_TYPE_INDEXED:
      return "palette";
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return "grey + alpha";
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return "RGBA";
    default:
      return "RGB";
  }
}

// Serves the kept chunks to libspng one after the other.
struct Feed {
  const std::vector<std::span<const uint8_t>>* spans;
  size_t span = 0, offset = 0;
};

int read_feed(spng_ctx*, void* user, void* out, size_t n) {
  Feed* feed = static_cast<Feed*>(user);
  uint8_t* to = static_cast<uint8_t*>(out);
  while (n > 0) {
    if (feed->span == feed->spans->size()) return SPNG_IO_EOF;
    const auto& span = (*feed->spans)[feed->span];
    const size_t take = std::min(n, span.size() - feed->offset);
    std::memcpy(to, span.data() + feed->offset, take);
    to += take;
    n -= take;
    feed->offset += take;
    if (feed->offset == span.size()) {
      feed->span += 1;
      feed->offset = 0;
    }
  }
  return SPNG_OK;
}

struct FreeContext {
  void operator()(spng_ctx* ctx) const { spng_ctx_free(ctx); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Status failure(int error) {
  if (error == SPNG_EMEM) return resource_exhausted("there is no memory for decoding a PNG file");
  if (error == SPNG_IO_EOF) return ends_early(Format::kPng);
  return damaged(Format::kPng);
}

// How libspng hands out a row, and what becomes of it.
struct RowForm {
  int format = SPNG_FMT_RGB8;
  size_t pixel_bytes = 3;
};

void store_row(const RowForm& form, const uint8_t* row, int32_t n, uint8_t* rgb) {
  if (form.format == SPNG_FMT_RGBA8) {
    row_over_white(row, n, rgb);
  } else {
    row16_over_white(reinterpret_cast<const uint16_t*>(row), n, rgb);
  }
}

// Interlaced rows come several times, each time with more of their pixels, so they need a buffer of
// the whole picture; others pass through one row.
Status decode_rows(spng_ctx* ctx, const Chunks& chunks, const RowForm& form, uint8_t* rgb) {
  const int32_t width = static_cast<int32_t>(chunks.width);
  const size_t row_bytes = form.pixel_bytes * chunks.width;
  const bool direct = form.format == SPNG_FMT_RGB8;
  const bool buffer_all = chunks.interlace != 0 && !direct;
  // 16-bit rows are read as such: the buffer is allocated in that type.
  std::vector<uint16_t> buffer(
      direct ? 0 : (row_bytes + 1) / 2 * (buffer_all ? size_t{chunks.height} : 1));
  uint8_t* const rows = direct ? rgb : reinterpret_cast<uint8_t*>(buffer.data());
  const bool one_row = !direct && !buffer_all;

  int error =
      spng_decode_image(ctx, nullptr, 0, form.format, SPNG_DECODE_TRNS | SPNG_DECODE_PROGRESSIVE);
  while (error == SPNG_OK) {
    spng_row_info info;
    error = spng_get_row_info(ctx, &info);
    if (error != SPNG_OK) break;
    if (info.row_num >= chunks.height) return damaged(Format::kPng);
    uint8_t* const row = rows + (one_row ? 0 : row_bytes * info.row_num);
    error = spng_decode_row(ctx, row, row_bytes);
    if (one_row && (error == SPNG_OK || error == SPNG_EOI)) {
      store_row(form, row, width, rgb + size_t{3} * chunks.width * info.row_num);
    }
  }
  if (error != SPNG_EOI) return failure(error);
  for (uint32_t y = 0; buffer_all && y < chunks.height; ++y) {
    store_row(form, rows + row_bytes * y, width, rgb + size_t{3} * chunks.width * y);
  }
  return ok_status();
}

}  // namespace

Result<Picture> decode_png(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
  OKIBI_ASSIGN_OR_RETURN(const Chunks chunks, walk_chunks(bytes));
  OKIBI_RETURN_IF_ERROR(check_header(chunks, limits));

  Feed feed{&chunks.kept};
  const Context ctx(spng_ctx_new(0));
  if (!ctx) return failure(SPNG_EMEM);
  int error = spng_set_image_limits(ctx.get(), chunks.width, chunks.height);
  if (error == SPNG_OK) error = spng_set_png_stream(ctx.get(), read_feed, &feed);
  spng_ihdr header;  // libspng's own checks of depth, colour kind and interlacing
  if (error == SPNG_OK) error = spng_get_ihdr(ctx.get(), &header);
  if (error != SPNG_OK) return failure(error);

  Picture picture;
  picture.format = Format::kPng;
  picture.stored_width = static_cast<int32_t>(chunks.width);
  picture.stored_height = static_cast<int32_t>(chunks.height);
  picture.orientation = chunks.orientation;
  picture.colour = colour_name(chunks.colour);
  picture.bits = chunks.depth;
  picture.is_progressive = chunks.interlace != 0;
  picture.has_alpha = chunks.has_trns || (chunks.colour & 4) != 0;
  picture.is_animated = chunks.is_animated;
  picture.has_icc_profile = chunks.has_icc;
  picture.rgb.resize(size_t{3} * chunks.width * chunks.height);

  RowForm form;
  if (chunks.depth == 16) {
    form = {.format = SPNG_FMT_RGBA16, .pixel_bytes = 8};
  } else if (picture.has_alpha) {
    form = {.format = SPNG_FMT_RGBA8, .pixel_bytes = 4};
  }
  OKIBI_RETURN_IF_ERROR(decode_rows(ctx.get(), chunks, form, picture.rgb.data()));
  return picture;
}

}  // namespace okibi::image
