// JPEG through libjpeg-turbo. Its error handler leaves by longjmp: the two functions that call
// setjmp hold only plain locals, and everything with a destructor lives in their callers. Nothing
// is printed; of the decoder's messages only the number is looked at.
#include <csetjmp>
#include <cstdio>
// jpeglib.h wants cstdio before it.
#include <jerror.h>
#include <jpeglib.h>

#include <cstring>

#include "image/decoders.h"

namespace okibi::image {
namespace {

// Honest files have some ten scans; each further one costs a pass over the whole picture.
constexpr int kMaxScans = 64;
constexpr int kTooManyScans = -1;  // beside libjpeg's message numbers
constexpr int kMarkerExif = JPEG_APP0 + 1, kMarkerIcc = JPEG_APP0 + 2;

struct Reader {
  jpeg_decompress_struct cinfo = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed;
  int code = 0;  // why it failed

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { jpeg_destroy_decompress(&cinfo); }  // harmless before creation: cinfo is zero
};

[[noreturn]] void leave(j_common_ptr cinfo, int code) {
  Reader* reader = static_cast<Reader*>(cinfo->client_data);
  reader->code = code;
  std::longjmp(reader->failed, 1);
}

void on_error(j_common_ptr cinfo) {
  leave(cinfo, cinfo->err->msg_code);
}

// libjpeg goes on after damage, with grey in place of what is lost. A picture that is partly
// invented must not be answered about.
void on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;
  switch (cinfo->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      leave(cinfo, cinfo->err->msg_code);
    default:
      break;
  }
  // Numbers past the header's own list are those of arithmetic decoding ("bad code"), which
  // jerror.h hides from programs other than the library. The rest is odd but whole.
  if (cinfo->err->msg_code > JWRN_TOO_MUCH_DATA) leave(cinfo, cinfo->err->msg_code);
}

void on_output(j_common_ptr) {}

void on_progress(j_common_ptr cinfo) {
  const Reader* reader = static_cast<const Reader*>(cinfo->client_data);
  if (reader->cinfo.input_scan_number > kMaxScans) leave(cinfo, kTooManyScans);
}

// setjmp: no locals with destructors from here ...
bool read_header(Reader* r, const uint8_t* bytes, size_t n_bytes) {
  r->cinfo.err = jpeg_std_error(&r->errors);
  r->errors.error_exit = on_error;
  r->errors.emit_message = on_message;
  r->errors.output_message = on_output;
  r->cinfo.client_data = r;
  if (setjmp(r->failed) != 0) return false;
  jpeg_create_decompress(&r->cinfo);
  r->progress.progress_monitor = on_progress;
  r->cinfo.progress = &r->progress;
  jpeg_mem_src(&r->cinfo, bytes, static_cast<unsigned long>(n_bytes));
  jpeg_save_markers(&r->cinfo, kMarkerExif, 0xffff);
  jpeg_save_markers(&r->cinfo, kMarkerIcc, 16);  // only its name is looked at
  jpeg_read_header(&r->cinfo, TRUE);
  return true;
}

// Rows of RGB land in rgb; those of CMYK pass through cmyk, one row long.
bool read_rows(Reader* r, uint8_t* rgb, uint8_t* cmyk) {
  if (setjmp(r->failed) != 0) return false;
  jpeg_start_decompress(&r->cinfo);
  const size_t width = r->cinfo.output_width;
  while (r->cinfo.output_scanline < r->cinfo.output_height) {
    uint8_t* out = rgb + 3 * width * r->cinfo.output_scanline;
    JSAMPROW row = cmyk != nullptr ? cmyk : out;
    jpeg_read_scanlines(&r->cinfo, &row, 1);
    for (size_t x = 0; cmyk != nullptr && x < width; ++x) {
      // Adobe stores 255 - ink, and so do the few files without its marker.
      const uint32_t light = cmyk[4 * x + 3];
      for (size_t c = 0; c < 3; ++c) {
        out[3 * x + c] = static_cast<uint8_t>((cmyk[4 * x + c] * light + 127) / 255);
      }
    }
  }
  jpeg_finish_decompress(&r->cinfo);
  return true;
}
// ... to here.

Status failure(const Reader& reader) {
  switch (reader.code) {
    case JWRN_JPEG_EOF:
    case JERR_INPUT_EMPTY:
    case JERR_INPUT_EOF:
      return ends_early(Format::kJpeg);
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
      return unsupported("the JPEG file is of a kind that is not read (12-bit, lossless or alike)");
    case JERR_EMPTY_IMAGE:
      return bad_data("the JPEG file declares a picture without pixels");
    case JERR_OUT_OF_MEMORY:
      return resource_exhausted("there is no memory for decoding a JPEG file");
    case kTooManyScans:
      return bad_data("the JPEG file has more than 64 scans; none needs so many");
    default:
      return damaged(Format::kJpeg);
  }
}

std::string_view colour_name(J_COLOR_SPACE space) {
  switch (space) {
    case JCS_GRAYSCALE:
      return "grey";
    case JCS_RGB:
      return "RGB";
    case JCS_CMYK:
      return "CMYK";
    case JCS_YCCK:
      return "YCCK";
    default:
      return "YCbCr";
  }
}

void note_markers(const jpeg_decompress_struct& cinfo, Picture* picture) {
  bool has_exif = false;
  for (jpeg_saved_marker_ptr m = cinfo.marker_list; m != nullptr; m = m->next) {
    const std::span<const uint8_t> data(m->data, m->data_length);
    if (m->marker == kMarkerExif && !has_exif && data.size() > 6 &&
        std::memcmp(data.data(), "Exif\0\0", 6) == 0) {
      has_exif = true;
      picture->orientation = exif_orientation(data);
    }
    if (m->marker == kMarkerIcc && data.size() >= 12 &&
        std::memcmp(data.data(), "ICC_PROFILE", 12) == 0) {
      picture->has_icc_profile = true;
    }
  }
}

}  // namespace

Result<Picture> decode_jpeg(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
  Reader reader;
  if (!read_header(&reader, bytes.data(), bytes.size())) return failure(reader);
  jpeg_decompress_struct& cinfo = reader.cinfo;
  const uint64_t width = cinfo.image_width, height = cinfo.image_height;
  OKIBI_RETURN_IF_ERROR(check_size(Format::kJpeg, width, height, limits));
  // Huffman codes take at least a bit for each block of 8 x 8: fewer bytes cannot hold the picture,
  // so its memory is not asked for.
  if (!cinfo.arith_code && width * height / 64 > 8 * uint64_t{bytes.size()}) {
    return ends_early(Format::kJpeg);
  }
  const J_COLOR_SPACE space = cinfo.jpeg_color_space;
  if (space == JCS_UNKNOWN) {
    return unsupported("the JPEG file has colour channels that are neither grey, RGB nor CMYK");
  }

  Picture picture;
  picture.format = Format::kJpeg;
  picture.stored_width = static_cast<int32_t>(width);
  picture.stored_height = static_cast<int32_t>(height);
  picture.colour = colour_name(space);
  picture.bits = cinfo.data_precision;
  picture.is_progressive = cinfo.progressive_mode;
  note_markers(cinfo, &picture);
  picture.rgb.resize(3 * width * height);

  const bool is_cmyk = space == JCS_CMYK || space == JCS_YCCK;
  cinfo.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  std::vector<uint8_t> cmyk_row(is_cmyk ? 4 * width : 0);
  if (!read_rows(&reader, picture.rgb.data(), is_cmyk ? cmyk_row.data() : nullptr)) {
    return failure(reader);
  }
  return picture;
}

}  // namespace okibi::image
