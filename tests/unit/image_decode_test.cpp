// Every colour kind, orientation and animation of tests/golden/pictures (made and described by
// make_pictures.py there) decodes to exactly the pixels that were meant.
#include <string>

#include "base/hash.h"
#include "image/view.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

using testing::decode_golden;
using testing::golden_json;
using testing::read_golden;

TEST(ImageDecode, EveryPictureDecodesToItsExactPixelsAndFacts) {
  const nlohmann::json pictures = golden_json("pictures/pictures.json").at("pictures");
  EXPECT_GE(pictures.size(), 80u);
  for (const auto& [name, want] : pictures.items()) {
    SCOPED_TRACE(name);
    const Picture picture = decode_golden("pictures/" + name);
    EXPECT_EQ(picture.width, want.at("width"));
    EXPECT_EQ(picture.height, want.at("height"));
    ASSERT_EQ(picture.rgb.size(),
              size_t{3} * static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height));
    EXPECT_EQ(to_hex(sha256(picture.rgb)), want.at("rgb_sha256"));
    EXPECT_EQ(picture.orientation, want.value("orientation", 1));
    const bool turned = picture.orientation >= 5;
    EXPECT_EQ(picture.stored_width, turned ? picture.height : picture.width);
    EXPECT_EQ(picture.bits, want.value("bits", 8));
    EXPECT_EQ(picture.has_alpha, want.value("alpha", false));
    EXPECT_EQ(picture.is_animated, want.value("animated", false));
    EXPECT_EQ(picture.is_progressive, want.value("progressive", false));
    EXPECT_EQ(picture.has_icc_profile, want.value("icc", false));
    if (want.contains("colour")) {
      EXPECT_EQ(picture.colour, want.at("colour").get<std::string>());
    }
    const std::string start = name.substr(0, name.find('_'));
    EXPECT_EQ(picture.format, start == "png"    ? Format::kPng
                              : start == "jpeg" ? Format::kJpeg
                                                : Format::kWebp);
  }
}

TEST(ImageDecode, TheEightOrientationsOfAFormatShowOnePicture) {
  for (const auto& [start, end] :
       {std::pair("png", ".png"), std::pair("jpeg", ".jpg"), std::pair("webp", ".webp")}) {
    const std::string name = std::string("pictures/") + start + "_orientation";
    const Picture upright = decode_golden(name + "1" + end);
    for (int o = 2; o <= 8; ++o) {
      const Picture other = decode_golden(name + std::to_string(o) + end);
      EXPECT_EQ(other.orientation, o);
      EXPECT_EQ(other.width, upright.width) << start << o;
      EXPECT_EQ(other.rgb, upright.rgb) << start << o;
    }
  }
}

TEST(ImageDecode, ThePixelsOfALosslessFileDoNotDependOnItsFormat) {
  const Picture png = decode_golden("pictures/png_orientation1.png");
  const Picture webp = decode_golden("pictures/webp_orientation1.webp");
  EXPECT_EQ(png.rgb, webp.rgb);
}

TEST(ImageDecode, FilesOfOtherKindsAreNamedAndRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GIF89a..........", "a GIF file"},
      {"BM..............", "a BMP file"},
      {std::string("II*\0............", 16), "a TIFF file"},
      {std::string("\0\0\0\x20"
                   "ftypavif",
                   12),
       "an AVIF file"},
      {std::string("\0\0\0\x20"
                   "ftypheic",
                   12),
       "a HEIC"},
      {"%PDF-1.7", "a PDF file"},
      {"RIFF....WAVE", "no known picture format"},
      {"hello", "no known picture format"},
      {"\x89PN", "no known picture format"},
  };
  for (const auto& [text, words] : cases) {
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    const Result<Picture> picture = decode_picture(bytes);
    ASSERT_FALSE(picture.ok());
    EXPECT_EQ(picture.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(picture.status().message().find(words), std::string::npos)
        << picture.status().message();
  }
  EXPECT_EQ(decode_picture({}).status().code(), StatusCode::kBadData);
}

TEST(ImageDecode, TheFormatIsToldByBytesAlone) {
  // A name or a declared type has no way in; the first bytes of another format change the reader.
  std::vector<uint8_t> bytes = read_golden("pictures/jpeg_444.jpg");
  EXPECT_TRUE(decode_picture(bytes).ok());
  bytes[0] = 0x89;
  EXPECT_EQ(decode_picture(bytes).status().code(), StatusCode::kUnsupported);
}

TEST(ImageDigest, ViewsOfEqualBytesAndSwappedSidesDiffer) {
  View wide{64, 32, std::vector<uint8_t>(3 * 64 * 32, 200)};
  View tall{32, 64, wide.rgb};
  EXPECT_NE(view_digest(wide), view_digest(tall));
  View red = wide;
  red.rgb[0] = 201;
  EXPECT_NE(view_digest(wide), view_digest(red));
  EXPECT_EQ(view_digest(wide), view_digest(View{64, 32, wide.rgb}));
  // SHA-256 of the sides and of the pixels that follow, by another route.
  std::vector<uint8_t> bytes = {64, 0, 0, 0, 32, 0, 0, 0};
  bytes.insert(bytes.end(), wide.rgb.begin(), wide.rgb.end());
  EXPECT_EQ(view_digest(wide), sha256(bytes));
}

}  // namespace
}  // namespace okibi::image
