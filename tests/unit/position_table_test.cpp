// Resizing the learned positions against check values of the specification.
#include "model/vision/position_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace okibi::model {
namespace {

void expect_weights(int32_t n, int32_t m, int32_t i, int32_t first, std::vector<double> want) {
  AxisWeights w = resize_weights(n, m, i);
  // A weight of zero at an end is no weight.
  while (!w.weights.empty() && std::abs(w.weights.back()) < 1e-12) w.weights.pop_back();
  while (!w.weights.empty() && std::abs(w.weights.front()) < 1e-12) {
    w.weights.erase(w.weights.begin());
    ++w.first;
  }
  ASSERT_EQ(w.weights.size(), want.size()) << n << " to " << m << ", position " << i;
  EXPECT_EQ(w.first, first) << n << " to " << m << ", position " << i;
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(w.weights[j], want[j], 1e-6);
}

TEST(PositionTable, WeightsAreThoseOfTheSpecification) {
  expect_weights(16, 32, 0, 0, {1});
  expect_weights(16, 32, 1, 0, {.75, .25});
  expect_weights(16, 32, 2, 0, {.25, .75});
  expect_weights(16, 18, 1, 0, {.166667, .833333});
  expect_weights(16, 18, 9, 7, {.055556, .944444});
  expect_weights(16, 12, 0, 0, {.7, .3});
  expect_weights(16, 12, 5, 6, {.272727, .636364, .090909});
  expect_weights(16, 8, 0, 0, {.428571, .428571, .142857});
  expect_weights(16, 8, 1, 1, {.125, .375, .375, .125});
}

TEST(PositionTable, RowsFollowTheHeightAndAnEqualGridIsTheTableItself) {
  std::vector<float> values;
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      values.push_back(static_cast<float>(y));
      values.push_back(static_cast<float>(x));
    }
  }
  PositionTable table(4, 2, values);
  const std::span<const float> same = table.resized(4, 4);
  EXPECT_EQ(std::vector<float>(same.begin(), same.end()), values);
  const std::span<const float> tall = table.resized(8, 4);
  ASSERT_EQ(tall.size(), 64u);
  EXPECT_FLOAT_EQ(tall[0], 0.0f);
  EXPECT_FLOAT_EQ(tall[(1 * 4 + 2) * 2], 0.25f);     // a quarter of the way to row 1
  EXPECT_FLOAT_EQ(tall[(1 * 4 + 2) * 2 + 1], 2.0f);  // columns as they were
  EXPECT_FLOAT_EQ(tall[(7 * 4 + 3) * 2], 3.0f);
}

TEST(PositionTable, KeepsFewGridsAndGivesTheSameValuesAgain) {
  std::vector<float> values(16 * 16 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  PositionTable table(16, 3, values);
  const std::span<const float> first = table.resized(6, 54);
  const std::vector<float> kept(first.begin(), first.end());
  for (int32_t g = 2; g < 40; g += 2) table.resized(g, 8);
  const std::span<const float> again = table.resized(6, 54);
  EXPECT_EQ(std::vector<float>(again.begin(), again.end()), kept);
}

}  // namespace
}  // namespace okibi::model
