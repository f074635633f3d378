// Split files: right ones, and every way in which a sibling can be wrong.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "gguf/reader.h"
#include "unit/gguf_bytes.h"

namespace okibi::gguf {
namespace {

using namespace gguf_bytes;  // NOLINT: the builders read better bare
namespace fs = std::filesystem;

class GgufSplit : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("okibi_split_" + std::string(test->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(int number, int count = 3) const {
    char name[64];
    std::snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    return (folder_ / name).string();
  }

  static std::vector<std::string> split_keys(int no, int count, int n_tensors) {
    return {key("split.no", 2, number<uint16_t>(static_cast<uint16_t>(no))),
            key("split.count", 2, number<uint16_t>(static_cast<uint16_t>(count))),
            key("split.tensors.count", 5, number<int32_t>(n_tensors))};
  }

  static std::string tensor_name(int no) { return std::string("t").append(std::to_string(no)); }

  // Shard `no` (from 0) holds the tensor "t<no>" = [no]; shard 0 has the model's keys.
  static RawFile shard(int no, int count = 3, int n_tensors = 3) {
    RawFile raw;
    if (no > 0) raw.keys.clear();
    for (const std::string& k : split_keys(no, count, n_tensors)) raw.keys.push_back(k);
    raw.tensors = {tensor(tensor_name(no), {1}, 0, 0)};
    raw.data = number(static_cast<float>(no)) + std::string(28, '\0');
    return raw;
  }

  static void write(const std::string& to, const RawFile& raw) {
    const auto bytes = raw.build();
    std::ofstream out(to, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }

  void write_all() const {
    for (int i = 0; i < 3; ++i) write(path(i + 1), shard(i));
  }

  static void expect_error(const std::string& open_path, std::string_view part) {
    const auto file = File::open(open_path);
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.status().message().find(part), std::string::npos) << file.status().message();
  }

  fs::path folder_;
};

TEST_F(GgufSplit, OpensAllShardsFromWhicheverIsNamed) {
  write_all();
  for (int named = 1; named <= 3; ++named) {
    const auto file = File::open(path(named));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->n_shards(), 3u);
    EXPECT_EQ(*file->get_string("general.architecture"), "x");
    ASSERT_EQ(file->tensors().size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      const TensorInfo* info = file->find_tensor(tensor_name(static_cast<int>(i)));
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->shard, i);
      float value;
      std::memcpy(&value, file->data(*info).data(), sizeof value);
      EXPECT_EQ(value, static_cast<float>(i));
    }
  }
}

TEST_F(GgufSplit, TakesEachShardsOwnAlignment) {
  write_all();
  RawFile first = shard(0);
  first.keys.push_back(key_u32("general.alignment", 64));
  first.alignment = 64;
  write(path(1), first);
  const auto file = File::open(path(1));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find_tensor("t0")->offset % 64, 0u);
}

TEST_F(GgufSplit, AcceptsAFirstShardWithoutTensors) {
  RawFile first = shard(0, 2, 1);
  first.tensors.clear();
  first.data.clear();
  write(path(1, 2), first);
  write(path(2, 2), shard(1, 2, 1));
  const auto file = File::open(path(1, 2));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 1u);
}

TEST_F(GgufSplit, TreatsACountOfOneOrNoKeyAsNotSplit) {
  RawFile whole = smallest();
  write(path(1), whole);  // the name alone means nothing
  EXPECT_TRUE(File::open(path(1)).ok());
  for (const uint16_t count : {0, 1}) {
    whole = smallest();
    whole.keys.push_back(key("split.count", 2, number(count)));
    write(path(2), whole);
    EXPECT_TRUE(File::open(path(2)).ok());
  }
}

TEST_F(GgufSplit, NamesTheShardThatIsMissing) {
  write_all();
  fs::remove(path(2));
  expect_error(path(1), "m-00002-of-00003.gguf: no such file");
  expect_error(path(3), "m-00002-of-00003.gguf: no such file");
}

TEST_F(GgufSplit, RefusesANameThatDoesNotFitTheKeys) {
  write_all();
  const std::string renamed = (folder_ / "model.gguf").string();
  fs::copy(path(1), renamed);
  expect_error(renamed, "expected a name that ends in -00001-of-00003.gguf");
  fs::copy(path(1), path(1, 4));
  expect_error(path(1, 4), "expected a name that ends in -00001-of-00003.gguf");
  fs::copy(path(1), (folder_ / "m-00000-of-00003.gguf").string());
  expect_error((folder_ / "m-00000-of-00003.gguf").string(), "expected a name that ends in");
}

TEST_F(GgufSplit, RefusesAShardThatStandsInForAnother) {
  write_all();
  fs::copy(path(1), path(2), fs::copy_options::overwrite_existing);
  expect_error(path(1), "m-00002-of-00003.gguf: split.no is 0, expected 1");
  expect_error(path(2), "split.no is 0, expected 1");
}

TEST_F(GgufSplit, RefusesACycleOfLinks) {
  write_all();
  fs::remove(path(3));
  fs::create_symlink(path(1), path(3));
  expect_error(path(1), "split.no is 0, expected 2");
}

TEST_F(GgufSplit, RefusesShardsOfDifferentSplits) {
  write_all();
  write(path(2), shard(1, 4));
  expect_error(path(1), "m-00002-of-00003.gguf: split.count is 4, expected 3");
  write(path(2), shard(1, 3, 9));
  expect_error(path(1), "split.tensors.count is 9, expected 3");
  RawFile plain = smallest();
  write(path(2), plain);
  expect_error(path(1), "split.count is 0, expected 3");
}

TEST_F(GgufSplit, RefusesATensorTotalThatDoesNotAddUp) {
  for (int i = 0; i < 3; ++i) write(path(i + 1), shard(i, 3, 4));
  expect_error(path(1), "the 3 shards hold 3 tensors, split.tensors.count says 4");
}

TEST_F(GgufSplit, RefusesATensorNameThatTwoShardsUse) {
  write_all();
  RawFile third = shard(2);
  third.tensors = {tensor("t0", {1}, 0, 0)};
  write(path(3), third);
  expect_error(path(1), "tensor \"t0\" occurs twice");
}

TEST_F(GgufSplit, RefusesSplitKeysThatAreMissingOrOutOfRange) {
  write_all();
  RawFile second = shard(1);
  second.keys.erase(second.keys.begin());
  write(path(2), second);
  expect_error(path(1), "m-00002-of-00003.gguf: key \"split.no\" is missing");
  second = shard(1);
  second.keys[2] = key("split.tensors.count", 5, number<int32_t>(-1));
  write(path(2), second);
  expect_error(path(1), "key \"split.tensors.count\" is -1");
  second = shard(1);
  second.keys[1] = key_text("split.count", "3");
  write(path(2), second);
  expect_error(path(1), "key \"split.count\" is string, expected an integer");
  second.keys[1] = key("split.count", 10, u64(1ull << 40));
  write(path(2), second);
  expect_error(path(1), "expected 0 to 65535");
}

TEST_F(GgufSplit, NamesTheShardThatIsDamaged) {
  write_all();
  fs::resize_file(path(3), fs::file_size(path(3)) - 32);
  expect_error(path(1), "m-00003-of-00003.gguf: tensor \"t2\"");
  fs::resize_file(path(3), 0);
  expect_error(path(1), "m-00003-of-00003.gguf: 0 bytes is too short");
}

TEST_F(GgufSplit, DoesNotReadAShardFromMemory) {
  const auto bytes = shard(1).build();
  const auto file = File::parse(bytes, "memory");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("shard 2 of 3"), std::string::npos);
}

}  // namespace
}  // namespace okibi::gguf
