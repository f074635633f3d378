// Reads the golden .safetensors files of tests: an 8-byte length, a JSON directory, raw tensors.
// For our own data only; it trusts the file and fails the test when something is missing.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace okibi::testing {

class SafeTensors {
 public:
  explicit SafeTensors(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    uint64_t n_header = 0;
    if (bytes_.size() >= 8) std::memcpy(&n_header, bytes_.data(), 8);
    if (n_header == 0 || n_header > bytes_.size() - 8) {
      ADD_FAILURE() << path << ": not a safetensors file";
      return;
    }
    header_ = nlohmann::json::parse(bytes_.begin() + 8, bytes_.begin() + 8 + n_header);
    data_begin_ = 8 + n_header;
  }

  bool has(const std::string& name) const { return header_.contains(name); }
  std::vector<size_t> shape(const std::string& name) const {
    return header_.at(name).at("shape").get<std::vector<size_t>>();
  }
  std::vector<float> floats(const std::string& name) const { return read<float>(name, "F32"); }
  std::vector<int32_t> ints(const std::string& name) const { return read<int32_t>(name, "I32"); }
  std::vector<uint8_t> bytes(const std::string& name) const { return read<uint8_t>(name, "U8"); }

 private:
  template <typename T>
  std::vector<T> read(const std::string& name, const char* type) const {
    const nlohmann::json& entry = header_.at(name);
    EXPECT_EQ(entry.at("dtype"), type) << name;
    const size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_begin_ + begin, end - begin);
    return values;
  }

  std::vector<char> bytes_;
  nlohmann::json header_;
  size_t data_begin_ = 0;
};

}  // namespace okibi::testing
