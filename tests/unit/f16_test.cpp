#include "base/f16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace okibi {
namespace {

TEST(F16, EveryHalfFloatSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = f16_to_float(static_cast<uint16_t>(h));
    const uint16_t back = float_to_f16(f);
    if (std::isnan(f)) {
      EXPECT_EQ(back & 0x7c00u, 0x7c00u);
      EXPECT_NE(back & 0x3ffu, 0u) << h;
    } else {
      EXPECT_EQ(back, h);
    }
    const float b = bf16_to_float(static_cast<uint16_t>(h));
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(b))));
    } else {
      EXPECT_EQ(float_to_bf16(b), h);
    }
  }
}

TEST(F16, KnownValues) {
  EXPECT_EQ(f16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_float(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(f16_to_float(0xfbff), -65504.0f);
  EXPECT_EQ(f16_to_float(0x7c00), INFINITY);
  EXPECT_EQ(float_to_bits(f16_to_float(0x8000)), 0x80000000u);
}

// Between every two neighbours: below the middle goes down, above goes up, the middle to the even.
TEST(F16, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = f16_to_float(static_cast<uint16_t>(h));
    const float high = f16_to_float(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;  // exact in float32
    EXPECT_EQ(float_to_f16(middle), h % 2 ? h + 1 : h);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), h);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, INFINITY)), h + 1);
    EXPECT_EQ(float_to_f16(-middle), 0x8000u | (h % 2 ? h + 1 : h));
  }
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(1e-30f), 0);
}

TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7f7f; ++h) {
    const uint32_t middle = h << 16 | 0x8000u;
    EXPECT_EQ(float_to_bf16(bits_to_float(middle)), h % 2 ? h + 1 : h);
    EXPECT_EQ(float_to_bf16(bits_to_float(middle - 1)), h);
    EXPECT_EQ(float_to_bf16(bits_to_float(middle + 1)), h + 1);
  }
  EXPECT_EQ(float_to_bf16(3.4e38f), 0x7f80);  // beyond the largest: infinity
}

}  // namespace
}  // namespace okibi
