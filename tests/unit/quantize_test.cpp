#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/f16.h"
#include "tensor/dequantize.h"
#include "unit/golden_quants.h"

namespace okibi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<DType> block_targets() {
  std::vector<DType> targets;
  size_t count = 0;
  const DTypeTraits* table = dtype_table(&count);
  for (size_t i = 0; i < count; ++i) {
    if (table[i].block_size > 1 && can_quantize_to(table[i].type)) targets.push_back(table[i].type);
  }
  return targets;
}

std::vector<float> round_trip(DType type, const std::vector<float>& x) {
  std::vector<uint8_t> blocks(row_bytes(type, x.size()));
  std::vector<float> y(x.size());
  const Status status = quantize_row(type, x.data(), x.size(), blocks.data());
  EXPECT_TRUE(status.ok()) << name_of(type) << ": " << status.message();
  dequantize_row(type, blocks.data(), x.size(), y.data());
  return y;
}

double relative_rms_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
    power += double{x[i]} * x[i];
  }
  return std::sqrt(error / power);
}

TEST(Quantize, WritesTheRecordedBytesOfEveryQuantiser) {
  const nlohmann::json manifest = golden::quants_manifest()["quantise"];
  const auto input = golden::quants_floats(manifest["input"]);
  const int64_t n = 512;
  size_t n_types = 0;
  for (const auto& entry : manifest["types"]) {
    const DType type = *dtype_from_name(entry["type"].get<std::string>());
    const auto expected = golden::quants_bytes(entry["bin"]);
    const uint64_t stride = row_bytes(type, n);
    ASSERT_EQ(expected.size(), stride * 16);
    std::vector<uint8_t> row(stride);
    int64_t n_wrong = 0;
    for (int64_t r = 0; r < 16; ++r) {
      ASSERT_TRUE(quantize_row(type, input.data() + r * n, n, row.data()).ok());
      for (uint64_t i = 0; i < stride; ++i) n_wrong += row[i] != expected[r * stride + i];
    }
    EXPECT_EQ(n_wrong, 0) << name_of(type) << " of " << expected.size() << " bytes";
    ++n_types;
  }
  EXPECT_EQ(n_types, block_targets().size());
}

TEST(Quantize, NarrowsRecordedHalfFloatsBackToTheirBits) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    const std::string name(name_of(type));
    const auto values = golden::quants_floats(name + ".f32");
    const auto bytes = golden::quants_bytes(name + ".bin");
    std::vector<uint8_t> back(bytes.size());
    ASSERT_TRUE(quantize_row(type, values.data(), values.size(), back.data()).ok()) << name;
    EXPECT_EQ(back, bytes) << name;
  }
}

TEST(Quantize, RefusesFiniteValuesBeyondTheRangeOfHalfFloats) {
  uint8_t out[2];
  float value = 65519.0f;  // rounds to 65504
  EXPECT_TRUE(quantize_row(DType::kF16, &value, 1, out).ok());
  value = 65520.0f;
  EXPECT_EQ(quantize_row(DType::kF16, &value, 1, out).message(),
            "value 0 is 65520, beyond the range of F16");
  EXPECT_TRUE(quantize_row(DType::kBF16, &value, 1, out).ok());
  value = std::numeric_limits<float>::max();
  EXPECT_FALSE(quantize_row(DType::kBF16, &value, 1, out).ok());
  value = kInf;
  EXPECT_TRUE(quantize_row(DType::kF16, &value, 1, out).ok());
  value = std::nanf("");
  ASSERT_TRUE(quantize_row(DType::kF16, &value, 1, out).ok());
  EXPECT_TRUE(std::isnan(f16_to_float(static_cast<uint16_t>(out[0] | out[1] << 8))));
}

TEST(Quantize, NamesTheValueThatIsNotFinite) {
  for (const DType type : block_targets()) {
    std::vector<float> x(512, 0.5f);
    std::vector<uint8_t> out(row_bytes(type, x.size()));
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      x[300] = bad;
      const Status status = quantize_row(type, x.data(), x.size(), out.data());
      EXPECT_EQ(status.code(), StatusCode::kBadData) << name_of(type);
      EXPECT_NE(status.message().find("value 300 is"), std::string::npos) << status.message();
    }
  }
}

TEST(Quantize, RefusesValuesWhoseScaleDoesNotFitTheBlock) {
  for (const DType type : block_targets()) {
    if (type == DType::kQ8_K || type == DType::kMXFP4) continue;  // wide scales
    for (const float huge : {1e9f, -1e9f, 3e38f, -3e38f}) {
      std::vector<float> x(512, 1.0f);
      x[260] = huge;
      x[261] = -0.25f * huge;
      std::vector<uint8_t> out(row_bytes(type, x.size()));
      const Status status = quantize_row(type, x.data(), x.size(), out.data());
      EXPECT_FALSE(status.ok()) << name_of(type) << " " << huge;
      EXPECT_NE(status.message().find("values 256 to "), std::string::npos) << status.message();
    }
  }
  std::vector<float> x(32, -70000.0f);  // the minimum, not the scale, is what does not fit
  uint8_t out[24];
  EXPECT_FALSE(quantize_row(DType::kQ4_1, x.data(), 32, out).ok());
  EXPECT_FALSE(quantize_row(DType::kQ5_1, x.data(), 32, out).ok());
}

TEST(Quantize, LargestHalfFloatFitsEveryType) {
  for (const DType type : block_targets()) {
    if (type == DType::kQ8_1) continue;  // its sum is an f16 too and overflows by design
    std::vector<float> x(256);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 ? 65504.0f : -65504.0f;
    EXPECT_LT(relative_rms_error(x, round_trip(type, x)), 0.25) << name_of(type);
  }
}

TEST(Quantize, TinyAndZeroRowsComeBackAsZerosOrTinyValues) {
  for (const DType type : block_targets()) {
    for (const float magnitude : {0.0f, 1e-45f, 1e-40f, 1e-38f, 1e-30f, 1e-20f, 1e-12f}) {
      std::vector<float> x(256);
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = magnitude * static_cast<float>(static_cast<int>(i % 17) - 8);
      }
      for (const float y : round_trip(type, x)) {
        EXPECT_LE(std::fabs(y), 2e-7f) << name_of(type) << " " << magnitude;
      }
    }
  }
}

TEST(Quantize, ErrorOnGaussianDataIsWhatTheFormatAllows) {
  // Relative RMS in percent, with the slack of a small sample.
  const std::pair<DType, double> limits[] = {
      {DType::kQ8_0, 0.54}, {DType::kQ6_K, 1.8}, {DType::kQ5_K, 3.6},   {DType::kQ5_1, 3.8},
      {DType::kQ5_0, 4.3},  {DType::kQ4_K, 7.1}, {DType::kIQ4_NL, 7.6}, {DType::kIQ4_XS, 7.7},
      {DType::kQ4_1, 7.8},  {DType::kQ4_0, 8.6}, {DType::kMXFP4, 11.5}};
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> x(256 * 256);
  for (float& v : x) v = normal(rng);
  for (const auto& [type, percent] : limits) {
    const double error = 100 * relative_rms_error(x, round_trip(type, x));
    EXPECT_NEAR(error, percent, 0.03 * percent) << name_of(type);
  }
}

TEST(Quantize, OffersNoTargetWithoutAQuantiser) {
  for (const DType type : {DType::kQ2_K, DType::kQ3_K, DType::kIQ1_S, DType::kIQ3_XXS,
                           DType::kTQ1_0, DType::kNVFP4, DType::kI32, DType::kF64}) {
    EXPECT_FALSE(can_quantize_to(type)) << name_of(type);
  }
}

}  // namespace
}  // namespace okibi
