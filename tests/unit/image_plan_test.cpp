// The view planner against worked examples and against plans of the reference processor
// (tests/golden/view_plans, made by tools/make_view_plans.py).
#include <algorithm>
#include <map>

#include "image/view.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

struct Example {
  int32_t width, height, columns, rows, view_width, view_height, image_tokens, prompt_tokens;
};
// LFM2.5-VL-450M and -1.6B.
constexpr Example kExamples[] = {
    {1, 1, 1, 1, 256, 256, 64, 66},           {32, 32, 1, 1, 256, 256, 64, 66},
    {64, 64, 1, 1, 256, 256, 64, 66},         {256, 384, 1, 1, 256, 384, 96, 98},
    {336, 336, 1, 1, 320, 320, 100, 102},     {512, 64, 1, 1, 736, 96, 69, 71},
    {512, 286, 1, 1, 512, 288, 144, 146},     {512, 512, 1, 1, 512, 512, 256, 258},
    {640, 480, 1, 1, 576, 416, 234, 236},     {720, 720, 1, 1, 512, 512, 256, 258},
    {724, 724, 2, 2, 512, 512, 1280, 1287},   {768, 683, 1, 1, 512, 480, 240, 242},
    {1000, 300, 1, 1, 928, 256, 232, 234},    {1024, 1024, 2, 2, 512, 512, 1280, 1287},
    {1024, 977, 2, 2, 512, 480, 1264, 1271},  {1190, 665, 2, 1, 672, 352, 743, 748},
    {1280, 720, 2, 1, 672, 384, 764, 769},    {1376, 768, 4, 2, 672, 352, 2279, 2290},
    {1536, 1536, 3, 3, 512, 512, 2560, 2572}, {1920, 1080, 4, 2, 672, 384, 2300, 2311},
    {1080, 1920, 2, 4, 384, 672, 2300, 2311}, {4000, 3000, 3, 2, 576, 416, 1770, 1779},
    {1000, 3000, 1, 3, 288, 864, 1011, 1017}, {300, 3000, 1, 10, 160, 1600, 2810, 2823},
};

ViewPlan plan_or_fail(int32_t width, int32_t height, const ViewParams& params = {}) {
  const Result<ViewPlan> plan = plan_views(width, height, params);
  EXPECT_TRUE(plan.ok()) << width << " x " << height << ": " << plan.status().message();
  return plan.ok() ? *plan : ViewPlan{};
}

TEST(ImagePlan, WorkedExamplesGiveTheirGridsViewsAndTokens) {
  for (const Example& e : kExamples) {
    SCOPED_TRACE(std::to_string(e.width) + " x " + std::to_string(e.height));
    const ViewPlan plan = plan_or_fail(e.width, e.height);
    EXPECT_EQ(plan.columns, e.columns);
    EXPECT_EQ(plan.rows, e.rows);
    EXPECT_EQ(plan.tiled, e.columns * e.rows > 1);
    EXPECT_EQ(plan.has_thumbnail, plan.tiled);
    EXPECT_EQ(plan.canvas_width, plan.tiled ? 512 * e.columns : 0);
    EXPECT_EQ(plan.canvas_height, plan.tiled ? 512 * e.rows : 0);
    EXPECT_EQ(plan.view_width, e.view_width);
    EXPECT_EQ(plan.view_height, e.view_height);
    EXPECT_EQ(plan.n_image_tokens(), e.image_tokens);
    EXPECT_EQ(plan.n_prompt_tokens(), e.prompt_tokens);
    EXPECT_EQ(plan.n_views(), plan.tiled ? e.columns * e.rows + 1 : 1);
  }
}

struct GoldenPlan {
  int32_t width, height, columns, rows, view_width, view_height;
};

std::vector<GoldenPlan> golden_plans() {
  const std::vector<uint8_t> bytes = testing::read_golden("view_plans/plans.bin");
  std::vector<GoldenPlan> plans;
  for (size_t at = 0; at + 10 <= bytes.size(); at += 10) {
    const auto u16 = [&](size_t i) { return bytes[at + i] | bytes[at + i + 1] << 8; };
    plans.push_back({u16(0), u16(2), bytes[at + 4], bytes[at + 5], 32 * u16(6), 32 * u16(8)});
  }
  return plans;
}

ViewParams params_of(const nlohmann::json& json) {
  ViewParams params;
  params.min_tokens = json.at("min_image_tokens");
  params.max_tokens = json.at("max_image_tokens");
  params.patch = json.at("encoder_patch_size");
  params.factor = json.at("downsample_factor");
  params.tile = json.at("tile_size");
  params.min_tiles = json.at("min_tiles");
  params.max_tiles = json.at("max_tiles");
  params.tolerance = json.at("max_pixels_tolerance");
  return params;
}

TEST(ImagePlan, RandomSizesGetThePlansOfTheReferenceProcessor) {
  const nlohmann::json manifest = testing::golden_json("view_plans/manifest.json");
  const std::vector<GoldenPlan> plans = golden_plans();
  size_t at = 0, n_wrong = 0, n_tiled = 0;
  for (const auto& set : manifest.at("sets")) {
    const ViewParams params = params_of(set.at("parameters"));
    const size_t end = at + set.at("plans").get<size_t>();
    ASSERT_LE(end, plans.size());
    for (; at < end; ++at) {
      const GoldenPlan& want = plans[at];
      const ViewPlan got = plan_or_fail(want.width, want.height, params);
      n_tiled += got.tiled;
      const bool same = got.columns == want.columns && got.rows == want.rows &&
                        got.view_width == want.view_width && got.view_height == want.view_height;
      if (!same && ++n_wrong <= 10) {
        ADD_FAILURE() << set.at("name") << ": " << want.width << " x " << want.height << ": "
                      << got.columns << " x " << got.rows << " tiles and " << got.view_width
                      << " x " << got.view_height << "; the reference has " << want.columns << " x "
                      << want.rows << " and " << want.view_width << " x " << want.view_height;
      }
    }
  }
  EXPECT_EQ(at, plans.size());
  EXPECT_EQ(at, 16000u);
  EXPECT_EQ(n_wrong, 0u);
  EXPECT_GT(n_tiled, 5000u);
}

TEST(ImagePlan, AThinPictureNeverExceedsThePatchesOfTheEncoder) {
  const ViewPlan plan = plan_or_fail(30, 6000);
  EXPECT_EQ(plan.view_width, 32);
  EXPECT_LE(plan.view_width / 16 * (plan.view_height / 16), 1024);
  for (int32_t width = 1; width < 120; ++width) {
    for (const int32_t ratio : {120, 150, 199, 200}) {
      for (const ViewPlan& p :
           {plan_or_fail(width, width * ratio), plan_or_fail(width * ratio, width)}) {
        EXPECT_LE(*std::max_element(p.tokens.begin(), p.tokens.end()), 256);
        EXPECT_GE(p.n_image_tokens(), 64);
      }
    }
  }
}

TEST(ImagePlan, TheLongSideOfAThinPictureIsCutToWholeTokens) {
  // By area this would be 32 x 3616, 452 patches of an encoder that takes 256.
  const ViewParams params = {.min_tokens = 16, .max_tokens = 64, .tile = 256};
  const ViewPlan tall = plan_or_fail(20, 4000, params), wide = plan_or_fail(4000, 20, params);
  EXPECT_EQ(tall.view_width, 32);
  EXPECT_EQ(tall.view_height, 2048);
  EXPECT_EQ(wide.view_width, 2048);
  EXPECT_EQ(wide.view_height, 32);
  EXPECT_EQ(tall.n_image_tokens(), 64);
}

TEST(ImagePlan, WithoutSplittingEveryPictureIsOneView) {
  ViewParams params;
  params.split = false;
  EXPECT_EQ(plan_or_fail(1024, 1024, params).n_views(), 1);
  params = {.min_tiles = 1, .max_tiles = 1};
  EXPECT_EQ(plan_or_fail(4000, 3000, params).n_views(), 1);
}

TEST(ImagePlan, WithoutThumbnailATiledPictureIsItsTiles) {
  ViewParams params;
  params.thumbnail = false;
  const ViewPlan plan = plan_or_fail(1024, 1024, params);
  EXPECT_EQ(plan.n_views(), 4);
  EXPECT_FALSE(plan.has_thumbnail);
  EXPECT_EQ(plan.view_width, 0);
  EXPECT_EQ(plan.n_prompt_tokens(), 4 * 256 + 4 + 2);
}

TEST(ImagePlan, AGridOfOneTileIsASingleView) {
  const ViewParams params = {.min_tiles = 1};
  const ViewPlan plan = plan_or_fail(721, 727, params);  // just above the tiling threshold
  EXPECT_FALSE(plan.tiled);
  EXPECT_EQ(plan.n_views(), 1);
  EXPECT_EQ(plan.n_image_tokens(), 240);
}

TEST(ImagePlan, SizesAndParametersThatMakeNoSenseAreRefused) {
  for (const auto& [width, height] : std::vector<std::pair<int32_t, int32_t>>{
           {0, 10}, {10, 0}, {-1, 10}, {1, 201}, {201, 1}, {1 << 21, 1 << 20}}) {
    const Result<ViewPlan> plan = plan_views(width, height, {});
    ASSERT_FALSE(plan.ok()) << width << " x " << height;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(plan.status().message().find(std::to_string(width)), std::string::npos);
  }
  EXPECT_TRUE(plan_views(1, 200, {}).ok());
  EXPECT_TRUE(plan_views(1 << 20, 1 << 20, {}).ok());
  for (const ViewParams& params :
       {ViewParams{.min_tokens = 0}, ViewParams{.max_tokens = 63}, ViewParams{.patch = 0},
        ViewParams{.factor = 0}, ViewParams{.tile = 500}, ViewParams{.min_tiles = 0},
        ViewParams{.max_tiles = 1}, ViewParams{.tolerance = 0}, ViewParams{.patch = 1, .factor = 1},
        ViewParams{.max_tokens = 1 << 17}, ViewParams{.max_tokens = 1 << 16, .patch = 64}}) {
    EXPECT_FALSE(plan_views(100, 100, params).ok());
  }
}

}  // namespace
}  // namespace okibi::image
