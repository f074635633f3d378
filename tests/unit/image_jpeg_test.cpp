// Kinds of JPEG that no Python library writes, made here with libjpeg itself.
#include <cstdio>
// jpeglib.h wants cstdio before it.
#include <jpeglib.h>

#include <cmath>
#include <cstdlib>

#include "image/picture.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

constexpr int kWidth = 61, kHeight = 43;

struct Kind {
  J_COLOR_SPACE given = JCS_RGB;  // what the samples are
  J_COLOR_SPACE stored = JCS_YCbCr;
  bool arithmetic = false, progressive = false, adobe_marker = false;
};

std::vector<uint8_t> samples(int n_channels) {
  std::vector<uint8_t> out;
  for (int i = 0; i < kWidth * kHeight; ++i) {
    for (int c = 0; c < n_channels; ++c) {
      const double x = i % kWidth, y = i / kWidth;
      out.push_back(
          static_cast<uint8_t>(std::lround(127.5 + 127 * std::sin(x / (5 + c) + y / (8 - c) + c))));
    }
  }
  return out;
}

std::vector<uint8_t> encode(const Kind& kind) {
  const int n_channels = kind.given == JCS_CMYK ? 4 : 3;
  std::vector<uint8_t> pixels = samples(n_channels);
  jpeg_compress_struct cinfo = {};
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* out = nullptr;
  unsigned long n_out = 0;
  jpeg_mem_dest(&cinfo, &out, &n_out);
  cinfo.image_width = kWidth;
  cinfo.image_height = kHeight;
  cinfo.input_components = n_channels;
  cinfo.in_color_space = kind.given;
  jpeg_set_defaults(&cinfo);
  jpeg_set_colorspace(&cinfo, kind.stored);
  jpeg_set_quality(&cinfo, 90, TRUE);
  cinfo.arith_code = kind.arithmetic;
  cinfo.write_Adobe_marker = kind.adobe_marker;
  if (kind.progressive) jpeg_simple_progression(&cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  while (cinfo.next_scanline < cinfo.image_height) {
    JSAMPROW row = pixels.data() + static_cast<size_t>(n_channels * kWidth) * cinfo.next_scanline;
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  std::vector<uint8_t> bytes(out, out + n_out);
  std::free(out);
  return bytes;
}

Picture decode(const std::vector<uint8_t>& bytes) {
  const Result<Picture> picture = decode_picture(bytes);
  EXPECT_TRUE(picture.ok()) << picture.status().message();
  return picture.ok() ? *picture : Picture{};
}

TEST(ImageJpeg, ArithmeticCodingGivesThePixelsOfHuffmanCoding) {
  const Picture huffman = decode(encode({}));
  ASSERT_EQ(huffman.width, kWidth);
  for (const bool progressive : {false, true}) {
    const std::vector<uint8_t> bytes = encode({.arithmetic = true, .progressive = progressive});
    EXPECT_EQ(decode(bytes).rgb, huffman.rgb) << progressive;
    for (size_t n = bytes.size() / 2; n < bytes.size(); n += 7) {
      EXPECT_FALSE(decode_picture(std::span(bytes).first(n)).ok()) << n;
    }
  }
}

// What the ink of each pixel should look like; JPEG moves it by some levels.
double mean_error(const Picture& picture) {
  const std::vector<uint8_t> stored = samples(4);
  double sum = 0;
  for (size_t i = 0; i < picture.rgb.size(); ++i) {
    const double want = stored[4 * (i / 3) + i % 3] * stored[4 * (i / 3) + 3] / 255.0;
    sum += std::fabs(picture.rgb[i] - want);
  }
  return sum / static_cast<double>(picture.rgb.size());
}

TEST(ImageJpeg, StoredCmykIsInvertedInkWithAndWithoutTheMarker) {
  for (const bool marker : {true, false}) {
    const Picture picture =
        decode(encode({.given = JCS_CMYK, .stored = JCS_CMYK, .adobe_marker = marker}));
    EXPECT_EQ(picture.colour, "CMYK");
    EXPECT_LT(mean_error(picture), 4);
  }
  const Picture ycck =
      decode(encode({.given = JCS_CMYK, .stored = JCS_YCCK, .adobe_marker = true}));
  EXPECT_EQ(ycck.colour, "YCCK");
  EXPECT_LT(mean_error(ycck), 6);
}

TEST(ImageJpeg, TwelveBitsAndLosslessAreUnsupported) {
  std::vector<uint8_t> bytes = testing::read_golden("pictures/jpeg_444.jpg");
  size_t at = 2;
  while (bytes[at + 1] != 0xc0) at += 2 + static_cast<size_t>(bytes[at + 2] << 8 | bytes[at + 3]);
  bytes[at + 4] = 12;  // bits per sample
  EXPECT_EQ(decode_picture(bytes).status().code(), StatusCode::kUnsupported);
  bytes[at + 4] = 8;
  bytes[at + 1] = 0xc3;  // lossless
  EXPECT_EQ(decode_picture(bytes).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace okibi::image
