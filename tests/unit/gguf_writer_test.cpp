#include "gguf/writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "unit/gguf_bytes.h"
#include "unit/golden_quants.h"

namespace okibi::gguf {
namespace {

namespace fs = std::filesystem;

class GgufWriter : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("okibi_writer_" + std::string(test->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "out.gguf").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  size_t n_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  static Status begin_with_tensor(const std::string& path, std::string_view name, DType type,
                                  std::vector<uint64_t> ne) {
    Writer writer;
    writer.add_tensor(name, type, ne);
    return writer.begin(path);
  }

  fs::path folder_;
  std::string path_;
};

std::span<const uint8_t> as_bytes(std::span<const float> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

TEST_F(GgufWriter, WritesTheSmallestUsefulFileToTheByte) {
  Writer writer;
  writer.set_string("general.architecture", "x");
  const uint64_t ne[] = {2};
  writer.add_tensor("a", DType::kF32, ne);
  ASSERT_TRUE(writer.begin(path_).ok());
  const float values[] = {1.0f, -2.5f};
  ASSERT_TRUE(writer.write(as_bytes(values)).ok());
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_EQ(golden::read_file(path_), gguf_bytes::smallest().build());
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(GgufWriter, KeysOfEveryTypeComeBack) {
  Writer writer;
  writer.set_u32("u32", 7);
  writer.set_i32("i32", -7);
  writer.set_u64("u64", 1ull << 50);
  writer.set_f32("f32", 0.5f);
  writer.set_bool("yes", true);
  writer.set_string("text", "caf\xc3\xa9");
  const std::vector<std::string> texts = {"a", "", std::string("b\0c", 3)};
  writer.set_strings("texts", texts);
  const std::vector<int32_t> i32s = {-1, 2};
  writer.set_i32s("i32s", i32s);
  const std::vector<uint32_t> u32s = {1, 4000000000u};
  writer.set_u32s("u32s", u32s);
  const std::vector<uint64_t> u64s = {~0ull};
  writer.set_u64s("u64s", u64s);
  const std::vector<float> f32s = {0.25f, -8.0f};
  writer.set_f32s("f32s", f32s);
  const bool flags[] = {true, false};
  writer.set_bools("flags", flags);
  writer.set_string("gone", "x");
  writer.set_u32("u32", 8);  // replaces, keeps its place
  writer.remove("gone");
  writer.remove("never there");
  writer.set_string("general.architecture", "last set, first written");
  ASSERT_TRUE(writer.begin(path_).ok());
  ASSERT_TRUE(writer.finish().ok());

  const auto file = File::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->entries()[0].key, "general.architecture");
  EXPECT_EQ(file->entries()[1].key, "u32");
  EXPECT_EQ(file->entries().size(), 13u);
  EXPECT_EQ(*file->get_u32("u32"), 8u);
  EXPECT_EQ(*file->get_ints("i32"), std::vector<int64_t>{-7});
  EXPECT_EQ(*file->get_u64("u64"), 1ull << 50);
  EXPECT_EQ(*file->get_f32("f32"), 0.5f);
  EXPECT_TRUE(*file->get_bool("yes"));
  EXPECT_EQ(*file->get_string("text"), "caf\xc3\xa9");
  const auto back = *file->get_strings("texts");
  EXPECT_TRUE(std::equal(back.begin(), back.end(), texts.begin(), texts.end()));
  EXPECT_EQ(*file->get_ints("i32s"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(*file->get_u64s("u32s"), (std::vector<uint64_t>{1, 4000000000u}));
  EXPECT_EQ(*file->get_u64s("u64s"), u64s);
  EXPECT_EQ(*file->get_floats("f32s"), f32s);
  EXPECT_EQ(*file->get_bools("flags"), (std::vector<bool>{true, false}));
  EXPECT_FALSE(file->has("gone"));
}

TEST_F(GgufWriter, ACopyOfAGoldenFileIsTheSameFile) {
  const std::string source = std::string(OKIBI_GOLDEN_DIR) + "/lfm2vl-tiny/lfm2vl-tiny-f32.gguf";
  const auto file = File::open(source);
  ASSERT_TRUE(file.ok());
  Writer writer;
  for (const File::Entry& entry : file->entries()) writer.copy(entry);
  for (const TensorInfo& info : file->tensors()) {
    writer.add_tensor(info.name, info.type,
                      std::span(info.ne).first(static_cast<size_t>(info.n_dims)));
  }
  ASSERT_TRUE(writer.begin(path_).ok());
  for (const TensorInfo& info : file->tensors()) {
    auto data = file->data(info);
    while (!data.empty()) {  // in odd pieces
      const size_t n = std::min<size_t>(data.size(), 1237);
      ASSERT_TRUE(writer.write(data.first(n)).ok());
      data = data.subspan(n);
    }
  }
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_EQ(golden::read_file(path_), golden::read_file(source));
}

TEST_F(GgufWriter, SkippedTensorsAreHolesThatReadAsZero) {
  Writer writer;
  const uint64_t big[] = {1 << 20, 256}, one[] = {1};
  writer.add_tensor("big", DType::kF32, big);
  writer.add_tensor("one", DType::kF32, one);
  writer.add_tensor("end", DType::kF32, big);
  ASSERT_TRUE(writer.begin(path_).ok());
  ASSERT_TRUE(writer.skip_tensor().ok());
  const float value = 3.0f;
  ASSERT_TRUE(writer.write(as_bytes({&value, 1})).ok());
  ASSERT_TRUE(writer.skip_tensor().ok());
  ASSERT_TRUE(writer.finish().ok());
  struct stat st {};
  ASSERT_EQ(::stat(path_.c_str(), &st), 0);
  EXPECT_GT(st.st_size, 2ll << 30);
  EXPECT_LT(st.st_blocks * 512, 1 << 20);
  const auto file = File::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  float back;
  std::memcpy(&back, file->data(*file->find_tensor("one")).data(), sizeof back);
  EXPECT_EQ(back, 3.0f);
  EXPECT_EQ(file->data(*file->find_tensor("end")).back(), 0);
}

TEST_F(GgufWriter, KeepsAnUnusualAlignmentAndDropsTheUsualOne) {
  for (const uint32_t alignment : {1u, 32u, 4096u}) {
    Writer writer;
    writer.set_u32("general.alignment", alignment);
    const uint64_t ne[] = {3};
    writer.add_tensor("a", DType::kF32, ne);
    writer.add_tensor("b", DType::kF32, ne);
    ASSERT_TRUE(writer.begin(path_).ok());
    ASSERT_TRUE(writer.skip_tensor().ok());
    ASSERT_TRUE(writer.skip_tensor().ok());
    ASSERT_TRUE(writer.finish().ok());
    const auto file = File::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->has("general.alignment"), alignment != 32);
    EXPECT_EQ(file->find_tensor("b")->offset % alignment, 0u);
    EXPECT_TRUE(file->warnings().empty());
  }
  Writer writer;
  writer.set_u32("general.alignment", 12);
  EXPECT_FALSE(writer.begin(path_).ok());
}

TEST_F(GgufWriter, RefusesWhatAReaderWouldRefuse) {
  const auto refused = [&](std::string_view name, DType type, std::vector<uint64_t> ne) {
    return begin_with_tensor(path_, name, type, std::move(ne)).message();
  };
  EXPECT_NE(refused("", DType::kF32, {1}).find("1 to 63 bytes"), std::string::npos);
  EXPECT_NE(refused(std::string(64, 'n'), DType::kF32, {1}).find("1 to 63"), std::string::npos);
  EXPECT_NE(refused("a", DType::kF32, {1, 1, 1, 1, 1}).find("5 dimensions"), std::string::npos);
  EXPECT_NE(refused("a", DType::kF32, {4, 0}).find("dimension 1 is 0"), std::string::npos);
  EXPECT_NE(refused("a", DType::kQ4_K, {300}).find("multiple of 256"), std::string::npos);
  EXPECT_NE(refused("a", DType::kF32, {1ull << 40, 1ull << 40}).find("64 bits"), std::string::npos);
  EXPECT_NE(refused("a", DType::kF64, {1ull << 62}).find("64 bits"), std::string::npos);
  EXPECT_NE(refused("a", DType::kQ8_0, {}).find("scalar"), std::string::npos);
  Writer twice;
  const uint64_t ne[] = {1};
  twice.add_tensor("a", DType::kF32, ne);
  twice.add_tensor("a", DType::kF32, ne);
  EXPECT_NE(twice.begin(path_).message().find("declared twice"), std::string::npos);
  Writer bad_key;
  bad_key.set_u32("caf\xc3\xa9", 1);
  EXPECT_NE(bad_key.begin(path_).message().find("printable ASCII"), std::string::npos);
  EXPECT_EQ(n_files(), 0u);
}

TEST_F(GgufWriter, AnUnfinishedFileLeavesNothingBehindAndTheOldOneInPlace) {
  {
    Writer writer;
    writer.set_string("general.architecture", "old");
    ASSERT_TRUE(writer.begin(path_).ok());
    ASSERT_TRUE(writer.finish().ok());
  }
  {
    Writer writer;
    const uint64_t ne[] = {4};
    writer.add_tensor("a", DType::kF32, ne);
    ASSERT_TRUE(writer.begin(path_).ok());
    EXPECT_EQ(n_files(), 2u);
  }
  EXPECT_EQ(n_files(), 1u);
  EXPECT_EQ(*File::open(path_)->get_string("general.architecture"), "old");
}

TEST_F(GgufWriter, SaysWhichFileCannotBeCreated) {
  Writer writer;
  const Status status = writer.begin("/nowhere/out.gguf");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("/nowhere/out.gguf"), std::string::npos);
}

}  // namespace
}  // namespace okibi::gguf
