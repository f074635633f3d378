// The recorded vectors of tests/golden/quants: manifest and files, for the quantisation tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace okibi::golden {

inline std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::vector<uint8_t> quants_bytes(const std::string& name) {
  return read_file(std::string(OKIBI_GOLDEN_DIR) + "/quants/" + name);
}

inline std::vector<float> quants_floats(const std::string& name) {
  const std::vector<uint8_t> bytes = quants_bytes(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

inline nlohmann::json quants_manifest() {
  const std::vector<uint8_t> bytes = quants_bytes("manifest.json");
  return nlohmann::json::parse(bytes.begin(), bytes.end());
}

}  // namespace okibi::golden
