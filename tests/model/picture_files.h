// Pictures for tests of what happens behind the decoder: PNG files with stored (uncompressed)
// pixels, written here so that two files can hold the same pixels in different bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace okibi::testing {

inline std::vector<uint8_t> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Rgb {
  uint8_t r, g, b;
};

// A PNG of width x height whose pixels are colour(x, y). `comment` becomes a text chunk: other
// bytes, the same pixels.
inline std::vector<uint8_t> make_png(uint32_t width, uint32_t height,
                                     const std::function<Rgb(uint32_t, uint32_t)>& colour,
                                     std::string_view comment = "") {
  std::vector<uint8_t> file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto put32 = [](std::vector<uint8_t>& to, uint32_t n) {
    for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<uint8_t>(n >> shift));
  };
  const auto chunk = [&](std::string_view type, const std::vector<uint8_t>& data) {
    put32(file, static_cast<uint32_t>(data.size()));
    const size_t begin = file.size();
    file.insert(file.end(), type.begin(), type.end());
    file.insert(file.end(), data.begin(), data.end());
    uint32_t crc = 0xffffffffu;
    for (size_t i = begin; i < file.size(); ++i) {
      crc ^= file[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
    }
    put32(file, ~crc);
  };
  std::vector<uint8_t> header;
  put32(header, width);
  put32(header, height);
  header.insert(header.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB
  chunk("IHDR", header);
  if (!comment.empty()) {
    std::vector<uint8_t> text = {'C', 'o', 'm', 'm', 'e', 'n', 't', 0};
    text.insert(text.end(), comment.begin(), comment.end());
    chunk("tEXt", text);
  }
  std::vector<uint8_t> raw;
  for (uint32_t y = 0; y < height; ++y) {
    raw.push_back(0);  // no filter
    for (uint32_t x = 0; x < width; ++x) {
      const Rgb c = colour(x, y);
      raw.insert(raw.end(), {c.r, c.g, c.b});
    }
  }
  std::vector<uint8_t> zlib = {0x78, 0x01};
  for (size_t at = 0; at < raw.size(); at += 65535) {
    const size_t n = std::min<size_t>(65535, raw.size() - at);
    zlib.push_back(at + n == raw.size() ? 1 : 0);
    for (const size_t value : {n, ~n}) {
      zlib.push_back(static_cast<uint8_t>(value));
      zlib.push_back(static_cast<uint8_t>(value >> 8));
    }
    zlib.insert(zlib.end(), raw.begin() + static_cast<long>(at),
                raw.begin() + static_cast<long>(at + n));
  }
  uint32_t a = 1, b = 0;
  for (const uint8_t byte : raw) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  put32(zlib, b << 16 | a);
  chunk("IDAT", zlib);
  chunk("IEND", {});
  return file;
}

inline std::vector<uint8_t> plain_png(uint32_t width, uint32_t height, Rgb colour,
                                      std::string_view comment = "") {
  return make_png(
      width, height, [colour](uint32_t, uint32_t) { return colour; }, comment);
}

// No two tiles alike.
inline std::vector<uint8_t> busy_png(uint32_t width, uint32_t height, uint32_t seed = 1,
                                     std::string_view comment = "") {
  return make_png(
      width, height,
      [seed](uint32_t x, uint32_t y) {
        const uint32_t n = (x / 9 * 2654435761u) ^ (y / 7 * 40503u * 65537u) ^ (seed * 2246822519u);
        return Rgb{static_cast<uint8_t>(n >> 24), static_cast<uint8_t>(n >> 16),
                   static_cast<uint8_t>(x + y)};
      },
      comment);
}

}  // namespace okibi::testing
