// Bytes that lie: cut, damaged, and with sizes no file holds. Each gets an error in one sentence of
// ours, quickly and without memory of the declared size.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "image/decoders.h"
#include "image/view.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

using testing::golden_json;
using testing::read_golden;

using Bytes = std::vector<uint8_t>;

std::vector<std::string> all_pictures() {
  std::vector<std::string> names;
  const nlohmann::json document = golden_json("pictures/pictures.json");
  for (const auto& [name, _] : document.at("pictures").items()) names.push_back("pictures/" + name);
  EXPECT_GE(names.size(), 80u);
  return names;
}

// A sentence of ours: short, printable, and not one of the decoders'.
void expect_own_words(const Status& status, const std::string& what) {
  const std::string& m = status.message();
  EXPECT_FALSE(m.empty()) << what;
  EXPECT_LT(m.size(), 160u) << what << ": " << m;
  EXPECT_TRUE(std::all_of(m.begin(), m.end(), [](char c) { return c >= ' ' && c <= '~'; })) << what;
  EXPECT_TRUE(m.starts_with("the picture") || m.starts_with("the PNG") ||
              m.starts_with("the JPEG") || m.starts_with("the WebP"))
      << what << ": " << m;
  for (const char* theirs : {"Huffman", "marker", "Corrupt", "libpng", "SOS", "0x", "errno"}) {
    EXPECT_EQ(m.find(theirs), std::string::npos) << what << ": " << m;
  }
}

TEST(ImageHostile, AFileCutAnywhereIsRefused) {
  for (const std::string& name : all_pictures()) {
    const Bytes bytes = read_golden(name);
    const size_t step = std::max<size_t>(1, bytes.size() / 250);
    for (size_t n = 0; n < bytes.size(); n += n + 16 < bytes.size() ? step : 1) {
      const Result<Picture> picture = decode_picture(std::span(bytes).first(n));
      ASSERT_FALSE(picture.ok()) << name << " cut to " << n << " of " << bytes.size();
      expect_own_words(picture.status(), name + " cut to " + std::to_string(n));
      if (n >= 12) {
        EXPECT_EQ(picture.status().code(), StatusCode::kBadData) << name << " cut to " << n;
      }
    }
  }
}

TEST(ImageHostile, BytesAfterThePictureAreIgnored) {
  for (const char* name :
       {"pictures/png_rgb8.png", "pictures/jpeg_420.jpg", "pictures/webp_lossless.webp"}) {
    Bytes bytes = read_golden(name);
    const Result<Picture> whole = decode_picture(bytes);
    bytes.insert(bytes.end(), 1000, 0xd9);
    const Result<Picture> longer = decode_picture(bytes);
    ASSERT_TRUE(whole.ok() && longer.ok()) << name << ": " << longer.status().message();
    EXPECT_EQ(whole->rgb, longer->rgb) << name;
  }
}

TEST(ImageHostile, DamagedBytesGiveAPictureOrAnErrorOfOurs) {
  std::mt19937 random(4);
  size_t n_refused = 0, n_read = 0;
  for (const std::string& name : all_pictures()) {
    const Bytes bytes = read_golden(name);
    for (int i = 0; i < 120; ++i) {
      Bytes damaged = bytes;
      for (size_t n = 1 + random() % 3; n > 0; --n) {
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      }
      const Result<Picture> picture = decode_picture(damaged);
      if (picture.ok()) {
        ++n_read;
        ASSERT_EQ(picture->rgb.size(), size_t{3} * static_cast<size_t>(picture->width) *
                                           static_cast<size_t>(picture->height));
      } else {
        ++n_refused;
        expect_own_words(picture.status(), name);
      }
    }
  }
  EXPECT_GT(n_refused, 2000u);
  EXPECT_GT(n_read, 200u);  // metadata, pixels of formats without checksums
}

uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

void put_big_endian(Bytes* bytes, size_t at, uint32_t value, size_t n = 4) {
  for (size_t i = 0; i < n; ++i) {
    (*bytes)[at + i] = static_cast<uint8_t>(value >> 8 * (n - 1 - i));
  }
}

// Files that declare any size they like, otherwise well-formed.
Bytes png_of(uint32_t width, uint32_t height) {
  Bytes bytes = read_golden("pictures/png_rgb8.png");
  put_big_endian(&bytes, 16, width);
  put_big_endian(&bytes, 20, height);
  put_big_endian(&bytes, 29, crc32(std::span(bytes).subspan(12, 17)));
  return bytes;
}

Bytes jpeg_of(uint32_t width, uint32_t height, const char* name = "pictures/jpeg_progressive.jpg") {
  Bytes bytes = read_golden(name);
  size_t at = 2;
  while (bytes[at + 1] != 0xc0 && bytes[at + 1] != 0xc2) {
    at += 2 + static_cast<size_t>(bytes[at + 2] << 8 | bytes[at + 3]);
  }
  put_big_endian(&bytes, at + 5, height, 2);
  put_big_endian(&bytes, at + 7, width, 2);
  return bytes;
}

Bytes webp_of(uint32_t width, uint32_t height) {
  Bytes bytes = read_golden("pictures/webp_animated.webp");
  for (size_t i = 0; i < 3; ++i) {
    bytes[24 + i] = static_cast<uint8_t>((width - 1) >> 8 * i);
    bytes[27 + i] = static_cast<uint8_t>((height - 1) >> 8 * i);
  }
  return bytes;
}

// The most memory held since the last call, in bytes.
uint64_t take_peak_memory() {
  uint64_t peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) peak = std::stoull(line.substr(6)) << 10;
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return peak;
}

TEST(ImageHostile, GiantDeclaredSizesAreRefusedWithoutTheirMemory) {
  struct Case {
    Bytes bytes;
    StatusCode code;
  };
  const std::vector<Case> cases = {
      {png_of(0x7fffffff, 0x7fffffff), StatusCode::kResourceExhausted},
      {png_of(0xffffffff, 0xffffffff), StatusCode::kResourceExhausted},
      {png_of(32769, 1000), StatusCode::kResourceExhausted},
      {png_of(30000, 30000), StatusCode::kResourceExhausted},
      {png_of(8000, 8000), StatusCode::kBadData},  // allowed, but no deflate is that dense
      {jpeg_of(65500, 65500), StatusCode::kResourceExhausted},
      {jpeg_of(20000, 20000), StatusCode::kResourceExhausted},
      {jpeg_of(8000, 8000), StatusCode::kBadData},
      {jpeg_of(8000, 8000, "pictures/jpeg_420.jpg"), StatusCode::kBadData},
      {webp_of(1 << 24, 1 << 7), StatusCode::kResourceExhausted},
      {webp_of(32769, 1000), StatusCode::kResourceExhausted},
      {webp_of(16000, 16000), StatusCode::kResourceExhausted},
  };
  take_peak_memory();
  const uint64_t before = take_peak_memory();
  const std::clock_t start = std::clock();  // processor time: the machine may be busy
  for (size_t i = 0; i < cases.size(); ++i) {
    const Result<Picture> picture = decode_picture(cases[i].bytes);
    ASSERT_FALSE(picture.ok()) << i;
    EXPECT_EQ(picture.status().code(), cases[i].code) << i << ": " << picture.status().message();
    expect_own_words(picture.status(), "case " + std::to_string(i));
  }
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
  EXPECT_LT(take_peak_memory(), before + (24 << 20));
#else
  (void)before;
#endif
}

TEST(ImageHostile, LimitsAreNamedWithWhatWasFound) {
  const Bytes png = read_golden("pictures/png_rgb8.png");  // 21 x 13
  const auto refused = [&](const DecodeLimits& limits) {
    const Result<Picture> picture = decode_picture(png, limits);
    EXPECT_FALSE(picture.ok());
    return picture.status().message();
  };
  EXPECT_EQ(refused({.max_file_bytes = 100}), "the picture file has " + std::to_string(png.size()) +
                                                  " bytes; at most 100 are allowed");
  EXPECT_EQ(refused({.max_side = 20}),
            "the PNG picture is 21 x 13 pixels; the longest side allowed is 20");
  EXPECT_EQ(refused({.max_pixels = 272}),
            "the PNG picture is 21 x 13 pixels, 273 in all; at most 272 are allowed");
  EXPECT_EQ(refused({.max_aspect = 1}),
            "the PNG picture is 21 x 13 pixels; pictures thinner than 1:1 are not read");
  EXPECT_TRUE(
      decode_picture(
          png, {.max_file_bytes = png.size(), .max_side = 21, .max_pixels = 273, .max_aspect = 2})
          .ok());
}

TEST(ImageHostile, PicturesWithoutPixelsOrTooThinAreRefused) {
  for (const Bytes& bytes : {png_of(0, 13), png_of(21, 0), jpeg_of(0, 29), jpeg_of(45, 0)}) {
    const Result<Picture> picture = decode_picture(bytes);
    ASSERT_FALSE(picture.ok());
    EXPECT_EQ(picture.status().code(), StatusCode::kBadData);
    EXPECT_NE(picture.status().message().find("pixels"), std::string::npos)
        << picture.status().message();
  }
  for (const Bytes& bytes : {png_of(2010, 10), jpeg_of(10, 2010), webp_of(20, 4020)}) {
    const Result<Picture> picture = decode_picture(bytes);
    ASSERT_FALSE(picture.ok());
    EXPECT_EQ(picture.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(picture.status().message().find("200:1"), std::string::npos);
  }
  EXPECT_TRUE(decode_picture(webp_of(20, 4000)).ok());  // exactly 200:1
}

TEST(ImageHostile, AJpegOfEndlessScansIsRefused) {
  // The first scan, which later ones do not depend on, again and again.
  const Bytes bytes = read_golden("pictures/jpeg_progressive.jpg");
  const auto marker_from = [&](size_t i, const std::function<bool(uint8_t)>& wanted) {
    while (i + 1 < bytes.size() && !(bytes[i] == 0xff && wanted(bytes[i + 1]))) ++i;
    return i;
  };
  const size_t begin = marker_from(2, [](uint8_t m) { return m == 0xda; });
  const size_t end = marker_from(begin + 2, [](uint8_t m) { return m != 0; });
  ASSERT_LT(end, bytes.size() - 2);
  const auto repeated = [&](int n) {
    Bytes endless = bytes;
    for (int i = 0; i < n; ++i) {
      endless.insert(endless.begin() + static_cast<std::ptrdiff_t>(end),
                     bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                     bytes.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return endless;
  };
  EXPECT_TRUE(decode_picture(repeated(10)).ok());
  const Bytes endless = repeated(100);
  const Result<Picture> picture = decode_picture(endless);
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.status().message(), "the JPEG file has more than 64 scans; none needs so many");
}

TEST(ImageHostile, CompressedExtrasOfAPngAreNotUnpacked) {
  // An iCCP chunk that is no deflate stream at all, and a critical chunk of no known type.
  const auto with_chunk = [](const char* type, const Bytes& body) {
    Bytes bytes = read_golden("pictures/png_rgb8.png");
    Bytes chunk(8 + body.size() + 4);
    put_big_endian(&chunk, 0, static_cast<uint32_t>(body.size()));
    std::memcpy(chunk.data() + 4, type, 4);
    std::copy(body.begin(), body.end(), chunk.begin() + 8);
    put_big_endian(&chunk, 8 + body.size(), crc32(std::span(chunk).subspan(4, 4 + body.size())));
    bytes.insert(bytes.begin() + 33, chunk.begin(), chunk.end());
    return decode_picture(bytes);
  };
  EXPECT_TRUE(with_chunk("iCCP", Bytes(1000, 0xff)).ok());
  EXPECT_TRUE(with_chunk("zTXt", Bytes(1000, 0xff)).ok());
  EXPECT_TRUE(with_chunk("eXIf", Bytes(1000, 0xff)).ok());
  EXPECT_FALSE(with_chunk("QQQQ", Bytes(10, 0)).ok());
  EXPECT_FALSE(with_chunk("IHDR", Bytes(13, 1)).ok());
}

Bytes exif_bytes(uint32_t tag, uint32_t type, uint32_t value, uint32_t directory = 8) {
  Bytes b = {'M', 'M', 0, 42, 0, 0, 0, 0, 0, 1};
  b.resize(8 + 2 + 12 + 4);
  put_big_endian(&b, 4, directory);
  put_big_endian(&b, 8, 1, 2);
  put_big_endian(&b, 10, tag, 2);
  put_big_endian(&b, 12, type, 2);
  put_big_endian(&b, 14, 1);
  put_big_endian(&b, 18, type == 4 ? value : value << 16);
  return b;
}

TEST(ImageHostile, BrokenExifMeansUpright) {
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 3, 6)), 6);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 4, 8)), 8);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 3, 0)), 1);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 3, 9)), 1);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 2, 6)), 1);
  EXPECT_EQ(exif_orientation(exif_bytes(0x113, 3, 6)), 1);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 3, 6, 0xfffffffe)), 1);
  EXPECT_EQ(exif_orientation(exif_bytes(0x112, 3, 6, 25)), 1);
  Bytes many = exif_bytes(0x113, 3, 6);
  put_big_endian(&many, 8, 0xffff, 2);
  EXPECT_EQ(exif_orientation(many), 1);
  const Bytes whole = exif_bytes(0x112, 3, 6);
  for (size_t n = 0; n < 22; ++n) EXPECT_EQ(exif_orientation(std::span(whole).first(n)), 1) << n;
}

}  // namespace
}  // namespace okibi::image
