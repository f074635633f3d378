#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/f16.h"
#include "tensor/codebooks.h"
#include "unit/golden_quants.h"

namespace okibi {
namespace {

// Equal bits, except that the two zeros count as one.
bool same_value(float a, float b) {
  return float_to_bits(a) == float_to_bits(b) || (a == 0.0f && b == 0.0f);
}

TEST(Dequantize, MeetsTheRecordedValuesOfEveryTypeToTheBit) {
  std::set<std::string> seen;
  const nlohmann::json manifest = golden::quants_manifest();
  for (const auto& entry : manifest["types"]) {
    const std::string name = entry["type"];
    const auto type = dtype_from_name(name);
    ASSERT_TRUE(type.has_value()) << name;
    const auto bytes = golden::quants_bytes(entry["bin"]);
    const auto expected = golden::quants_floats(entry["f32"]);
    const int64_t n = entry["row_length"], rows = entry["rows"];
    const uint64_t stride = row_bytes(*type, static_cast<uint64_t>(n));
    ASSERT_EQ(stride, entry["row_bytes"].get<uint64_t>()) << name;
    ASSERT_EQ(bytes.size(), stride * rows) << name;
    ASSERT_EQ(expected.size(), static_cast<size_t>(n * rows)) << name;
    std::vector<float> row(n);
    int64_t n_wrong = 0;
    for (int64_t r = 0; r < rows; ++r) {
      dequantize_row(*type, bytes.data() + r * stride, n, row.data());
      for (int64_t i = 0; i < n; ++i) n_wrong += !same_value(row[i], expected[r * n + i]);
    }
    EXPECT_EQ(n_wrong, 0) << name << " of " << n * rows;
    seen.insert(name);
  }
  // Every weight type and both activation formats must have been among them.
  size_t count = 0;
  const DTypeTraits* table = dtype_table(&count);
  for (size_t i = 0; i < count; ++i) {
    const bool due =
        table[i].is_weight || table[i].type == DType::kQ8_1 || table[i].type == DType::kQ8_K;
    if (!due) continue;
    EXPECT_TRUE(seen.count(std::string(table[i].name))) << table[i].name;
  }
}

TEST(Dequantize, ReadsBlocksAtAnyAlignment) {
  const auto bytes = golden::quants_bytes("Q6_K.bin");
  std::vector<uint8_t> shifted(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  float a[256], b[256];
  dequantize_row(DType::kQ6_K, bytes.data(), 256, a);
  dequantize_row(DType::kQ6_K, shifted.data() + 1, 256, b);
  for (int i = 0; i < 256; ++i) EXPECT_TRUE(same_value(a[i], b[i])) << i;
}

TEST(Dequantize, WritesNothingForAnEmptyRow) {
  float sentinel = 7.0f;
  dequantize_row(DType::kQ4_K, nullptr, 0, &sentinel);
  dequantize_row(DType::kF32, nullptr, 0, &sentinel);
  EXPECT_EQ(sentinel, 7.0f);
}

TEST(Dequantize, SignTableHasEvenParityAndKeepsItsIndex) {
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(kKSigns[i] & 127, i);
    EXPECT_EQ(__builtin_popcount(kKSigns[i]) % 2, 0) << i;
  }
}

}  // namespace
}  // namespace okibi
