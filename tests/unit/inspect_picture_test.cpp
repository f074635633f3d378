// `okibi inspect PICTURE`: what it prints and writes.
#include "apps/inspect_picture.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/hash.h"
#include "image/view.h"
#include "unit/image_files.h"

namespace okibi::apps {
namespace {

namespace fs = std::filesystem;
using image::testing::decode_golden;

constexpr char kWide[] = "lfm2vl-tiny/images/img4_1600x500.png";

std::string golden(const std::string& name) {
  return std::string(OKIBI_GOLDEN_DIR) + "/" + name;
}

std::string output_of(const InspectPictureFlags& flags) {
  ::testing::internal::CaptureStdout();
  const Status status = inspect_picture(flags);
  std::fflush(stdout);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

std::vector<image::View> views_of(const std::string& name) {
  const image::Picture picture = decode_golden(name);
  const auto plan = image::plan_views(picture.width, picture.height, {});
  EXPECT_TRUE(plan.ok());
  auto views = image::make_views(picture, *plan, {});
  EXPECT_TRUE(views.ok());
  return *views;
}

TEST(InspectPicture, ReadableTextNamesFormatOrientationViewsAndTokens) {
  const std::string text = output_of({.path = golden("pictures/jpeg_orientation6.jpg")});
  for (const char* part :
       {"JPEG, 40 x 24", "stored       24 x 40", "turned clockwise by 90 degrees", "whole picture",
        "352 x 224", "77 image tokens, 79 in the prompt"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  const std::string odd = output_of({.path = golden("pictures/webp_animated.webp")});
  EXPECT_NE(odd.find("laid over white"), std::string::npos);
  EXPECT_NE(odd.find("the first frame"), std::string::npos);
}

TEST(InspectPicture, JsonHoldsWhatTheTextSays) {
  const nlohmann::json json =
      nlohmann::json::parse(output_of({.path = golden(kWide), .json = true}));
  EXPECT_EQ(json.at("format"), "PNG");
  EXPECT_EQ(json.at("width"), 1600);
  EXPECT_EQ(json.at("plan").at("columns"), 3);
  EXPECT_EQ(json.at("plan").at("image_tokens"), 992);
  EXPECT_EQ(json.at("plan").at("prompt_tokens"), 998);
  EXPECT_EQ(json.at("file_sha256"), to_hex(sha256(image::testing::read_golden(kWide))));
  const std::vector<image::View> views = views_of(kWide);
  ASSERT_EQ(json.at("views").size(), views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(json["views"][i].at("sha256"), to_hex(image::view_digest(views[i])));
    EXPECT_EQ(json["views"][i].at("width"), views[i].width);
  }
  EXPECT_EQ(json["views"][2].at("column"), 3);
  EXPECT_EQ(json["views"][3].at("shows"), "thumbnail");
}

TEST(InspectPicture, TheViewsAreWrittenAsPpm) {
  const fs::path folder = fs::path(::testing::TempDir()) / "okibi_inspect_picture";
  fs::create_directories(folder);
  const auto body_of = [](const fs::path& path, const std::string& header) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_GT(bytes.size(), header.size()) << path;
    EXPECT_TRUE(std::equal(header.begin(), header.end(), bytes.begin())) << path;
    return std::vector<uint8_t>(bytes.begin() + static_cast<std::ptrdiff_t>(header.size()),
                                bytes.end());
  };
  output_of({.path = golden(kWide), .rgb_path = folder / "wide.ppm"});
  const std::vector<image::View> views = views_of(kWide);
  EXPECT_EQ(body_of(folder / "wide-1.ppm", "P6\n512 512\n255\n"), views[0].rgb);
  EXPECT_EQ(body_of(folder / "wide-4.ppm", "P6\n896 256\n255\n"), views[3].rgb);
  EXPECT_FALSE(fs::exists(folder / "wide.ppm"));
  output_of({.path = golden("pictures/png_rgb8.png"), .rgb_path = folder / "one.ppm"});
  EXPECT_TRUE(fs::exists(folder / "one.ppm"));
  fs::remove_all(folder);
}

TEST(InspectPicture, PicturesAreToldFromOtherFilesByTheirBytes) {
  EXPECT_TRUE(is_picture_file(golden("pictures/png_rgb8.png")));
  EXPECT_TRUE(is_picture_file(golden("pictures/webp_lossy.webp")));
  EXPECT_FALSE(is_picture_file(golden("pictures/pictures.json")));
  EXPECT_FALSE(is_picture_file(golden("lfm2vl-tiny/lfm2vl-tiny-f32.gguf")));
  EXPECT_FALSE(is_picture_file(golden("no such file")));
  EXPECT_FALSE(is_picture_file(golden("")));
  const Status status = inspect_picture({.path = golden("pictures/pictures.json")});
  EXPECT_NE(status.message().find("pictures.json: the picture is"), std::string::npos);
}

}  // namespace
}  // namespace okibi::apps
