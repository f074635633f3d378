#include "gguf/check_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/f16.h"
#include "tensor/dequantize.h"
#include "unit/gguf_bytes.h"
#include "unit/golden_quants.h"

namespace okibi::gguf {
namespace {

// One row of the recorded blocks of `type` as a file.
std::vector<uint8_t> file_with_row(const std::string& type, std::span<const uint8_t> row,
                                   uint64_t n) {
  gguf_bytes::RawFile raw;
  const uint32_t number = static_cast<uint32_t>(*dtype_from_name(type));
  raw.tensors = {gguf_bytes::tensor("t", {n}, number, 0)};
  raw.data = std::string(row.begin(), row.end());
  return raw.build();
}

Status check(const std::vector<uint8_t>& bytes) {
  const auto file = File::parse(bytes, "x");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return check_tensor_data(*file, file->tensors()[0]);
}

// Over every place in a block that could hold a scale: with the bytes there set to the pattern of a
// NaN, the check must fail exactly when the values are no longer finite.
TEST(GgufCheckData, FindsExactlyTheScalesThatSpoilTheValues) {
  const nlohmann::json manifest = golden::quants_manifest();
  for (const auto& entry : manifest["types"]) {
    const std::string type = entry["type"];
    if (!traits_of(*dtype_from_name(type)).is_weight) continue;  // sums beside the values
    const uint64_t n = entry["row_length"], stride = entry["row_bytes"];
    const auto bytes = golden::quants_bytes(entry["bin"]);
    const std::vector<uint8_t> sound(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(stride));
    EXPECT_TRUE(check(file_with_row(type, sound, n)).ok()) << type;
    const uint64_t block_bytes = entry["block_bytes"];
    int n_spoiled = 0;
    for (uint64_t at = 0; at + 1 < block_bytes; ++at) {
      std::vector<uint8_t> row = sound;
      row[at] = 0xff;
      row[at + 1] = 0x7f;
      std::vector<float> values(n);
      dequantize_row(*dtype_from_name(type), row.data(), static_cast<int64_t>(n), values.data());
      bool is_finite = true;
      for (const float v : values) is_finite &= std::isfinite(v);
      // A single 0x7f byte may fall into half of a scale; what counts is the outcome. 0xff as an
      // E8M0 byte is a NaN by the format, whatever the formula makes of it.
      const bool is_e8m0 = type == "MXFP4" && at == 0;
      EXPECT_EQ(check(file_with_row(type, row, n)).ok(), is_finite && !is_e8m0)
          << type << " at " << at;
      n_spoiled += !is_finite || is_e8m0;
    }
    // NVFP4 has no NaN of its own; IQ1_M spreads its scale so that no two bytes can spoil it.
    if (type == "NVFP4" || type == "IQ1_M") continue;
    EXPECT_GT(n_spoiled, 0) << type;
  }
}

TEST(GgufCheckData, AssemblesTheScaleOfIq1M) {
  const auto bytes = golden::quants_bytes("IQ1_M.bin");
  std::vector<uint8_t> row(bytes.begin(), bytes.begin() + 112);
  for (const int at : {53, 55}) row[at] |= 0xf0;  // top nibbles of words 2 and 3: exponent all ones
  const Status status = check(file_with_row("IQ1_M", row, 512));
  EXPECT_EQ(status.message(), "tensor \"t\": a scale is not finite at value 0 (row 0)");
}

TEST(GgufCheckData, PassesIntegerTensors) {
  const std::vector<uint8_t> row(64, 0xff);
  EXPECT_TRUE(check(file_with_row("I32", row, 16)).ok());
}

}  // namespace
}  // namespace okibi::gguf
