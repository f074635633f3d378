#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "unit/golden_quants.h"

namespace okibi {
namespace {

TEST(DType, SizesAreThoseOfTheRecordedFiles) {
  const nlohmann::json manifest = golden::quants_manifest();
  for (const auto& entry : manifest["types"]) {
    const DTypeTraits* traits = find_dtype(entry["ggml_type"].get<uint32_t>());
    ASSERT_NE(traits, nullptr) << entry["type"];
    EXPECT_EQ(traits->name, entry["type"].get<std::string>());
    EXPECT_EQ(traits->block_size, entry["block_size"].get<uint32_t>()) << entry["type"];
    EXPECT_EQ(traits->block_bytes, entry["block_bytes"].get<uint32_t>()) << entry["type"];
  }
}

TEST(DType, RemovedAndUnknownNumbersAreNotInTheTable) {
  for (const uint32_t number : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 1000u, ~0u}) {
    EXPECT_EQ(find_dtype(number), nullptr) << number;
  }
}

TEST(DType, TheTableIsAscendingAndNamesFindTheirTypesInAnyCase) {
  size_t count = 0;
  const DTypeTraits* table = dtype_table(&count);
  EXPECT_EQ(count, 35u);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(i == 0 || table[i - 1].type < table[i].type);
    std::string lower(table[i].name);
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(dtype_from_name(table[i].name), table[i].type);
    EXPECT_EQ(dtype_from_name(lower), table[i].type);
  }
  EXPECT_EQ(dtype_from_name("Q9_9"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, RowBytesCountBlocks) {
  EXPECT_EQ(row_bytes(DType::kF32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 0), 0u);
}

}  // namespace
}  // namespace okibi
