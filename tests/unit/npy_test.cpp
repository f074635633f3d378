// The .npy files of `okibi logits`: exactly the bytes NumPy expects, and no half-written file.
#include "apps/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace okibi::apps {
namespace {

std::string temporary_path(const char* name) {
  return (std::filesystem::temp_directory_path() / name).string();
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(Npy, HeaderIsVersionOneAndItsLengthAMultipleOf64) {
  const std::string header = npy_header("<f4", std::vector<uint64_t>{706, 49152});
  ASSERT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length = static_cast<uint8_t>(header[8]) + 256u * static_cast<uint8_t>(header[9]);
  EXPECT_EQ(length + 10, header.size());
  EXPECT_EQ(header.back(), '\n');
  EXPECT_EQ(header.substr(10, 66),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (706, 49152), } ");
}

TEST(Npy, RowsFollowTheHeaderAsLittleEndianFloats) {
  const std::string path = temporary_path("okibi_npy_rows.npy");
  Result<NpyWriter> writer = NpyWriter::create(path, 2, 3);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  const std::vector<float> values = {1, 2, 3, -4, 5.5f, 1e-20f};
  writer->write_row(std::span(values).first(3));
  writer->write_row(std::span(values).last(3));
  ASSERT_TRUE(writer->finish().ok());
  const std::string bytes = read_all(path);
  ASSERT_EQ(bytes.size(), npy_header("<f4", std::vector<uint64_t>{2, 3}).size() + 24);
  EXPECT_EQ(std::memcmp(bytes.data() + bytes.size() - 24, values.data(), 24), 0);
  std::filesystem::remove(path);
}

TEST(Npy, AFileWithTooFewRowsIsAnErrorAndIsRemoved) {
  const std::string path = temporary_path("okibi_npy_short.npy");
  {
    Result<NpyWriter> writer = NpyWriter::create(path, 2, 1);
    ASSERT_TRUE(writer.ok());
    writer->write_row(std::vector<float>{1});
    const Status status = writer->finish();
    EXPECT_NE(status.message().find("1 of 2 rows"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Npy, ARowOfTheWrongLengthIsAnError) {
  const std::string path = temporary_path("okibi_npy_wide.npy");
  Result<NpyWriter> writer = NpyWriter::create(path, 1, 2);
  ASSERT_TRUE(writer.ok());
  writer->write_row(std::vector<float>{1, 2, 3});
  EXPECT_FALSE(writer->finish().ok());
}

TEST(Npy, APathThatCannotBeWrittenIsNamed) {
  const Result<NpyWriter> writer = NpyWriter::create("/nonexistent/folder/x.npy", 1, 1);
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.status().message().find("/nonexistent/folder/x.npy"), std::string::npos);
}

}  // namespace
}  // namespace okibi::apps
