// Pictures of the oracle, from file bytes to normalised patches: what the reference processor fed
// its encoder. A single grey level of difference fails.
#include <cmath>

#include "image/view.h"
#include "safetensors.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

using testing::decode_golden;
using testing::golden_json;

constexpr int kSide = 16;
constexpr size_t kPatch = kSide * kSide * 3;
constexpr size_t kHead = 8;  // patches the oracle keeps whole

float value_at(const View& view, size_t patch, size_t i) {
  const size_t columns = static_cast<size_t>(view.width) / kSide;
  const size_t x = patch % columns * kSide + i / 3 % kSide,
               y = patch / columns * kSide + i / 3 / kSide;
  const size_t at = 3 * (y * static_cast<size_t>(view.width) + x) + i % 3;
  return static_cast<float>(view.rgb[at]) / 127.5f - 1;
}

// Grey levels that differ among the first patches of a view.
size_t wrong_levels(const View& view, const float* head) {
  size_t n = 0;
  for (size_t i = 0; i < kHead * kPatch; ++i) {
    n += std::fabs(value_at(view, i / kPatch, i % kPatch) - head[i]) > 1e-3f;
  }
  return n;
}

double worst_mean(const View& view, const float* mean) {
  const size_t n = static_cast<size_t>(view.width / kSide * (view.height / kSide));
  double worst = 0;
  for (size_t i = 0; i < kPatch; ++i) {
    double sum = 0;
    for (size_t patch = 0; patch < n; ++patch) sum += value_at(view, patch, i);
    worst = std::max(worst, std::fabs(sum / static_cast<double>(n) - mean[i]));
  }
  return worst;
}

void check_case(const okibi::testing::SafeTensors& golden, const nlohmann::json& entry,
                const std::string& prefix) {
  const std::string file = entry.at("file");
  SCOPED_TRACE(file);
  const Picture picture = decode_golden("lfm2vl-tiny/" + file);
  ASSERT_EQ(picture.width, entry.at("width"));
  ASSERT_EQ(picture.height, entry.at("height"));
  const Result<ViewPlan> plan = plan_views(picture.width, picture.height, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Result<std::vector<View>> views = make_views(picture, *plan, {});
  ASSERT_TRUE(views.ok()) << views.status().message();
  const auto grids = entry.at("patch_grid").get<std::vector<std::vector<int>>>();
  ASSERT_EQ(views->size(), grids.size());
  if (entry.contains("cols")) {
    EXPECT_EQ(plan->columns, entry.at("cols"));
    EXPECT_EQ(plan->rows, entry.at("rows"));
    EXPECT_EQ(plan->tokens, entry.at("tokens_per_tile").get<std::vector<int32_t>>());
  }
  const std::vector<float> head = golden.floats(prefix + ".patches_head");
  const std::vector<float> mean = golden.floats(prefix + ".patches_mean");
  ASSERT_EQ(head.size(), views->size() * kHead * kPatch);
  ASSERT_EQ(mean.size(), views->size() * kPatch);
  for (size_t i = 0; i < views->size(); ++i) {
    const View& view = (*views)[i];
    ASSERT_EQ(view.height, grids[i][0] * kSide);
    ASSERT_EQ(view.width, grids[i][1] * kSide);
    EXPECT_EQ(wrong_levels(view, head.data() + i * kHead * kPatch), 0u) << "view " << i;
    // One level in one of at most 1024 patches moves a mean by 7.6e-6.
    EXPECT_LT(worst_mean(view, mean.data() + i * kPatch), 2e-6) << "view " << i;
  }
}

TEST(ImageOracle, ViewsOfEveryPictureEqualTheReferenceToTheLastGreyLevel) {
  const okibi::testing::SafeTensors golden(OKIBI_GOLDEN_DIR "/lfm2vl-tiny/golden.safetensors");
  const nlohmann::json cases = golden_json("lfm2vl-tiny/golden.json");
  size_t n = 0;
  for (const auto& [group, prefix] : {std::pair("images", "img"), std::pair("kinds", "kind")}) {
    for (size_t i = 0; i < cases.at(group).size(); ++i, ++n) {
      check_case(golden, cases[group][i], prefix + std::to_string(i));
    }
  }
  EXPECT_EQ(n, 15u);
}

}  // namespace
}  // namespace okibi::image
