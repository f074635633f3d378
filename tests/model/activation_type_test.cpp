// Products with bfloat16 activations are closer to exact ones than those with 8-bit activations,
// on every family; where a level lacks the units, they are those with 8 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "golden_model.h"
#include "tiny_models.h"

namespace okibi::test {
namespace {

using okibi::testing::open_engine;
using okibi::testing::walk;

std::shared_ptr<Engine> open(const std::string& path, ActivationType activations,
                             const std::string& level = "") {
  return open_engine({.model_path = path,
                      .cpu_level = level,
                      .n_threads = 1,
                      .n_ctx = 256,
                      .n_sessions = 1,
                      .kv_type = KvCacheType::kF32,
                      .activations = activations});
}

std::vector<std::vector<float>> logits_of(const std::string& path, ActivationType activations) {
  std::vector<TokenId> ids;
  for (int i = 0; i < 96; ++i) ids.push_back(static_cast<TokenId>(i * 37 % 250 + 1));
  const auto engine = open(path, activations);
  return engine == nullptr ? std::vector<std::vector<float>>{} : walk(*engine, ids).rows;
}

// Root of the mean square of a - b, over that of b.
double relative_error(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  double error = 0, power = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t j = 0; j < b[i].size(); ++j) {
      error += std::pow(double{a[i][j]} - double{b[i][j]}, 2);
      power += std::pow(double{b[i][j]}, 2);
    }
  }
  return std::sqrt(error / power);
}

bool has_units() {
  return best_level(host_cpu()) == CpuLevel::kAmx;
}

TEST(ActivationType, Bfloat16IsCloserToExactThanEightBits) {
  for (const char* family : {"llama", "lfm2", "qwen35"}) {
    SCOPED_TRACE(family);
    const std::string path = tiny_model(family, DType::kQ8_0);
    const auto exact = logits_of(path, ActivationType::kF32);
    const double rounded = relative_error(logits_of(path, ActivationType::kBf16), exact);
    const double eight_bits = relative_error(logits_of(path, ActivationType::kInt8), exact);
    std::printf("%s: bfloat16 %.5f, 8 bits %.5f\n", family, rounded, eight_bits);
    if (has_units()) {
      EXPECT_LT(rounded, eight_bits);
    } else {
      EXPECT_EQ(rounded, eight_bits);
    }
  }
}

// 16 bits of each factor: as good as float32 for most purposes.
TEST(ActivationType, PairsOfBfloat16AreNearlyExact) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const std::string path = tiny_model("lfm2", type);
    EXPECT_LT(relative_error(logits_of(path, ActivationType::kBf16),
                             logits_of(path, ActivationType::kF32)),
              1e-4);
  }
}

// What is kept under one identity may answer for another engine of the same identity.
TEST(ActivationType, IdentitySaysWhatTheLevelDoes) {
  const std::string path = tiny_model("lfm2", DType::kQ8_0);
  for (const std::string& level : okibi::testing::host_levels()) {
    const auto plain = open(path, ActivationType::kInt8, level);
    const auto rounded = open(path, ActivationType::kBf16, level);
    ASSERT_TRUE(plain && rounded);
    EXPECT_EQ(plain->numeric_identity() != rounded->numeric_identity(), level == "amx") << level;
    EXPECT_EQ(plain->memory().needed_bytes < rounded->memory().needed_bytes, level == "amx")
        << level;
  }
}

}  // namespace
}  // namespace okibi::test
