// What the picture tests share: files of the golden folders, and a reader that expects success.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "image/picture.h"

namespace okibi::image::testing {

inline std::vector<uint8_t> read_golden(const std::string& name) {
  std::ifstream in(std::string(OKIBI_GOLDEN_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name << " is missing";
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json golden_json(const std::string& name) {
  const std::vector<uint8_t> bytes = read_golden(name);
  return nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
}

inline Picture decode_golden(const std::string& name) {
  const Result<Picture> picture = decode_picture(read_golden(name));
  EXPECT_TRUE(picture.ok()) << name << ": " << picture.status().message();
  return picture.ok() ? *picture : Picture{};
}

}  // namespace okibi::image::testing
