// The integer weights of resizing and the views made with them. That the result equals the
// reference on real pictures is checked by image_oracle_test.cpp.
#include "image/resize.h"

#include <cmath>
#include <random>

#include "image/view.h"
#include "unit/image_files.h"

namespace okibi::image {
namespace {

using Resample = ViewParams::Resample;

std::vector<uint8_t> random_pixels(int32_t width, int32_t height, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> rgb(size_t{3} * static_cast<size_t>(width * height));
  for (uint8_t& v : rgb) v = static_cast<uint8_t>(random());
  return rgb;
}

Picture picture_of(int32_t width, int32_t height, unsigned seed = 1) {
  Picture picture;
  picture.width = width;
  picture.height = height;
  picture.rgb = random_pixels(width, height, seed);
  return picture;
}

// The weight of input j in output i, as a fraction.
double weight(const AxisWeights& axis, size_t i, int32_t j) {
  const int32_t k = j - axis.first[i];
  if (k < 0 || k >= axis.count[i]) return 0;
  const size_t at = i * static_cast<size_t>(axis.stride) + static_cast<size_t>(k);
  return std::ldexp(axis.weights[at], -axis.precision);
}

TEST(ImageResize, TriangleWeightsHaveTheirKnownValues) {
  const AxisWeights twice = make_axis_weights(16, 32, Resample::kBilinear);
  EXPECT_EQ(twice.precision, 14);  // a border output has weight 1
  EXPECT_EQ(weight(twice, 0, 0), 1);
  EXPECT_EQ(weight(twice, 1, 0), 0.75);
  EXPECT_EQ(weight(twice, 1, 1), 0.25);
  EXPECT_EQ(weight(twice, 2, 0), 0.25);
  const AxisWeights to12 = make_axis_weights(16, 12, Resample::kBilinear);
  EXPECT_EQ(to12.precision, 15);
  EXPECT_NEAR(weight(to12, 0, 0), 0.7, 2e-5);
  EXPECT_NEAR(weight(to12, 5, 6), 0.272727, 2e-5);
  EXPECT_NEAR(weight(to12, 5, 7), 0.636364, 2e-5);
  EXPECT_NEAR(weight(to12, 5, 8), 0.090909, 2e-5);
  const AxisWeights half = make_axis_weights(16, 8, Resample::kBilinear);
  EXPECT_EQ(half.precision, 16);
  EXPECT_NEAR(weight(half, 0, 2), 0.142857, 2e-5);
  for (const auto& [j, w] : {std::pair(1, 0.125), {2, 0.375}, {3, 0.375}, {4, 0.125}}) {
    EXPECT_EQ(weight(half, 1, j), w);
  }
}

TEST(ImageResize, WeightsOfEachOutputSumToOneAndStayInside) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const int32_t n = 1 + static_cast<int32_t>(random() % 4000);
    const int32_t m = 32 * (1 + static_cast<int32_t>(random() % 60));
    for (const Resample resample : {Resample::kBilinear, Resample::kBicubic}) {
      const AxisWeights axis = make_axis_weights(n, m, resample);
      ASSERT_EQ(axis.first.size(), static_cast<size_t>(m));
      for (size_t o = 0; o < axis.first.size(); ++o) {
        ASSERT_GE(axis.first[o], 0);
        ASSERT_GE(axis.count[o], 1);
        ASSERT_LE(axis.first[o] + axis.count[o], n);
        double sum = 0;
        for (int32_t j = 0; j < axis.count[o]; ++j) sum += weight(axis, o, axis.first[o] + j);
        ASSERT_NEAR(sum, 1, std::ldexp(axis.count[o], -axis.precision - 1));
      }
    }
  }
}

// Both passes, sample by sample.
uint8_t naive(const std::vector<uint8_t>& rgb, int32_t width, const AxisWeights& columns,
              const AxisWeights& rows, size_t x, size_t y, size_t c) {
  const auto reduced = [](double sum, int32_t precision) {
    const double v = std::floor(std::ldexp(sum, -precision) + 0.5);
    return v < 0 ? 0 : v > 255 ? 255 : v;
  };
  double sum = 0;
  for (int32_t j = 0; j < rows.count[y]; ++j) {
    const size_t row = static_cast<size_t>(rows.first[y] + j) * static_cast<size_t>(width);
    double inner = 0;
    for (int32_t k = 0; k < columns.count[x]; ++k) {
      inner += rgb[3 * (row + static_cast<size_t>(columns.first[x] + k)) + c] *
               columns.weights[x * static_cast<size_t>(columns.stride) + static_cast<size_t>(k)];
    }
    sum += reduced(inner, columns.precision) *
           rows.weights[y * static_cast<size_t>(rows.stride) + static_cast<size_t>(j)];
  }
  return static_cast<uint8_t>(reduced(sum, rows.precision));
}

TEST(ImageResize, BothPassesEqualTheSumsWrittenOut) {
  constexpr int32_t kSizes[][4] = {
      {37, 53, 64, 32}, {300, 20, 32, 64}, {900, 7, 704, 32}, {5, 3, 96, 96}};
  for (const auto& [w, h, to_w, to_h] : kSizes) {
    const std::vector<uint8_t> rgb = random_pixels(w, h, 3);
    for (const Resample resample : {Resample::kBilinear, Resample::kBicubic}) {
      const std::vector<uint8_t> out = resize_rgb(rgb, w, h, to_w, to_h, resample);
      const AxisWeights columns = make_axis_weights(w, to_w, resample);
      const AxisWeights rows = make_axis_weights(h, to_h, resample);
      ASSERT_EQ(out.size(), size_t{3} * static_cast<size_t>(to_w * to_h));
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t x = i / 3 % static_cast<size_t>(to_w), y = i / 3 / static_cast<size_t>(to_w);
        ASSERT_EQ(out[i], naive(rgb, w, columns, rows, x, y, i % 3))
            << w << " x " << h << " to " << to_w << " x " << to_h << " at " << i;
      }
    }
  }
}

TEST(ImageResize, AnAxisThatKeepsItsLengthIsCopied) {
  const std::vector<uint8_t> rgb = random_pixels(64, 32, 5);
  EXPECT_EQ(resize_rgb(rgb, 64, 32, 64, 32, Resample::kBilinear), rgb);
  EXPECT_EQ(resize_rgb(rgb, 64, 32, 64, 32, Resample::kBicubic), rgb);
}

TEST(ImageResize, APlainPictureStaysPlain) {
  for (const int grey : {0, 1, 127, 254, 255}) {
    const std::vector<uint8_t> rgb(3 * 333 * 77, static_cast<uint8_t>(grey));
    for (const Resample resample : {Resample::kBilinear, Resample::kBicubic}) {
      const std::vector<uint8_t> out = resize_rgb(rgb, 333, 77, 544, 32, resample);
      EXPECT_EQ(std::count(out.begin(), out.end(), static_cast<uint8_t>(grey)),
                static_cast<std::ptrdiff_t>(out.size()));
    }
  }
}

TEST(ImageViews, TilesAreCutRowByRowAndTheThumbnailIsLast) {
  const Picture picture = picture_of(1024, 1024);  // the canvas is the picture itself
  const Result<ViewPlan> plan = plan_views(1024, 1024, {});
  ASSERT_TRUE(plan.ok());
  const Result<std::vector<View>> views = make_views(picture, *plan, {});
  ASSERT_TRUE(views.ok()) << views.status().message();
  ASSERT_EQ(views->size(), 5u);
  for (size_t tile = 0; tile < 4; ++tile) {
    const View& view = (*views)[tile];
    ASSERT_EQ(view.width, 512);
    ASSERT_EQ(view.height, 512);
    for (const auto& [x, y] : {std::pair<size_t, size_t>(0, 0), {511, 0}, {17, 300}, {511, 511}}) {
      const size_t from = 3 * ((y + tile / 2 * 512) * 1024 + x + tile % 2 * 512);
      EXPECT_EQ(view.rgb[3 * (y * 512 + x)], picture.rgb[from]) << "tile " << tile;
    }
  }
  EXPECT_EQ((*views)[4].rgb, resize_rgb(picture.rgb, 1024, 1024, 512, 512, Resample::kBilinear));
}

TEST(ImageViews, TheResamplerOfTheModelIsUsed) {
  const Picture picture = picture_of(100, 80);
  ViewParams params;
  const Result<ViewPlan> plan = plan_views(100, 80, params);
  ASSERT_TRUE(plan.ok());
  const auto linear = make_views(picture, *plan, params);
  params.resample = Resample::kBicubic;
  const auto cubic = make_views(picture, *plan, params);
  ASSERT_TRUE(linear.ok() && cubic.ok());
  EXPECT_NE((*linear)[0].rgb, (*cubic)[0].rgb);
}

TEST(ImageViews, APlanForAnotherPictureOrModelIsRefused) {
  const Picture picture = picture_of(100, 80);
  const Result<ViewPlan> other = plan_views(80, 100, {});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(make_views(picture, *other, {}).status().code(), StatusCode::kInvalidArgument);
  const Result<ViewPlan> plan = plan_views(100, 80, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(make_views(picture, *plan, {.min_tokens = 4, .max_tokens = 8}).ok());
  Picture short_of_bytes = picture;
  short_of_bytes.rgb.pop_back();
  EXPECT_FALSE(make_views(short_of_bytes, *plan, {}).ok());
}

}  // namespace
}  // namespace okibi::image
