// What a well-formed file answers: keys of every type, tensors, typed getters, the golden models.
#include "gguf/reader.h"

#include <gtest/gtest.h>

#include <cstring>

#include "unit/gguf_bytes.h"
#include "unit/golden_quants.h"

namespace okibi::gguf {
namespace {

using namespace gguf_bytes;  // NOLINT: the builders read better bare

File must_parse(const std::vector<uint8_t>& bytes) {
  auto file = File::parse(bytes, "test.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return std::move(file).value();
}

TEST(GgufReader, ReadsTheSmallestUsefulFile) {
  const auto bytes = smallest().build();
  ASSERT_EQ(bytes.size(), 160u);
  const File file = must_parse(bytes);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.n_shards(), 1u);
  EXPECT_EQ(file.file_bytes(), 160u);
  EXPECT_EQ(*file.get_string("general.architecture"), "x");
  ASSERT_EQ(file.tensors().size(), 1u);
  const TensorInfo* a = file.find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->n_dims, 1);
  EXPECT_EQ(a->ne, (std::array<uint64_t, 4>{2, 1, 1, 1}));
  EXPECT_EQ(a->offset, 128u);
  EXPECT_EQ(shape_text(*a), "(2)");
  float values[2];
  ASSERT_EQ(file.data(*a).size(), sizeof values);
  std::memcpy(values, file.data(*a).data(), sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.5f);
  EXPECT_EQ(file.find_tensor("b"), nullptr);
  EXPECT_TRUE(file.warnings().empty());
}

TEST(GgufReader, ReadsVersionTwoAlike) {
  RawFile raw = smallest();
  raw.version = 2;
  EXPECT_EQ(must_parse(raw.build()).version(), 2u);
}

TEST(GgufReader, ReadsScalarsOfEveryType) {
  RawFile raw;
  raw.keys = {key("u8", 0, number<uint8_t>(200)),
              key("i8", 1, number<int8_t>(-3)),
              key("u16", 2, number<uint16_t>(60000)),
              key("i16", 3, number<int16_t>(-300)),
              key("u32", 4, u32(4000000000u)),
              key("i32", 5, number<int32_t>(-70000)),
              key("f32", 6, number(1.5f)),
              key("yes", 7, number<uint8_t>(1)),
              key("text", 8, text(std::string_view("a\0b", 3))),
              key("u64", 10, u64(1ull << 63)),
              key("i64", 11, number<int64_t>(-(1ll << 40))),
              key("f64", 12, number(0.1))};
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  EXPECT_EQ(*file.get_u32("u8"), 200u);
  EXPECT_EQ(*file.get_u64("u16"), 60000u);
  EXPECT_EQ(*file.get_u32("u32"), 4000000000u);
  EXPECT_EQ(*file.get_u64("u64"), 1ull << 63);
  EXPECT_EQ(*file.get_ints("i8"), std::vector<int64_t>{-3});
  EXPECT_EQ(*file.get_ints("i16"), std::vector<int64_t>{-300});
  EXPECT_EQ(*file.get_ints("i32"), std::vector<int64_t>{-70000});
  EXPECT_EQ(*file.get_ints("i64"), std::vector<int64_t>{-(1ll << 40)});
  EXPECT_EQ(*file.get_f32("f32"), 1.5f);
  EXPECT_EQ(*file.get_f64("f64"), 0.1);
  EXPECT_EQ(*file.get_f32("f64"), 0.1f);
  EXPECT_TRUE(*file.get_bool("yes"));
  EXPECT_EQ(*file.get_string("text"), std::string_view("a\0b", 3));
  EXPECT_EQ(file.entries().front().key, "u8");
  EXPECT_EQ(file.entries().back().key, "f64");
}

TEST(GgufReader, ReadsArraysAndScalarsAsOneElement) {
  RawFile raw;
  raw.keys = {
      key_array("i32s", 5, 3, number<int32_t>(-1) + number<int32_t>(0) + number<int32_t>(7)),
      key_array("u64s", 10, 2, u64(1) + u64(~0ull)),
      key_array("f64s", 12, 2, number(0.25) + number(-4.0)),
      key_array("flags", 7, 3, std::string("\1\0\1", 3)),
      key_array("texts", 8, 3, text("a") + text("") + text("ccc")),
      key_array("nothing", 4, 0, ""),
      key_array("no_texts", 8, 0, ""),
      key_u32("one", 5)};
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  EXPECT_EQ(*file.get_ints("i32s"), (std::vector<int64_t>{-1, 0, 7}));
  EXPECT_EQ(*file.get_u64s("u64s"), (std::vector<uint64_t>{1, ~0ull}));
  EXPECT_EQ(*file.get_floats("f64s"), (std::vector<float>{0.25f, -4.0f}));
  EXPECT_EQ(*file.get_floats("i32s"), (std::vector<float>{-1, 0, 7}));
  EXPECT_EQ(*file.get_bools("flags"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*file.get_strings("texts"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(*file.get_u64s("one"), std::vector<uint64_t>{5});
  EXPECT_TRUE(file.get_u64s("nothing")->empty());
  EXPECT_TRUE(file.get_strings("no_texts")->empty());
}

// Every message must name the key.
template <typename T>
void expect_error(const Result<T>& result, StatusCode code, std::string_view message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_EQ(result.status().message(), message);
}

TEST(GgufReader, NamesTheKeyThatIsMissingOrWrong) {
  RawFile raw;
  raw.keys = {key_text("text", "x"),
              key("minus", 5, number<int32_t>(-1)),
              key("big", 10, u64(1ull << 40)),
              key("flag", 7, number<uint8_t>(1)),
              key("nan", 6, u32(0x7fc00000u)),
              key("wide", 12, number(1e300)),
              key_array("ints", 5, 2, number<int32_t>(4) + number<int32_t>(-4)),
              key_array("huge", 10, 1, u64(~0ull)),
              key_array("infs", 6, 1, u32(0x7f800000u))};
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  const auto bad = StatusCode::kBadData;
  expect_error(file.get_u32("gone"), StatusCode::kNotFound, "key \"gone\" is missing");
  expect_error(file.get_u32("text"), bad, "key \"text\" is string, expected an integer");
  expect_error(file.get_u32("flag"), bad, "key \"flag\" is bool, expected an integer");
  expect_error(file.get_u64("minus"), bad,
               "key \"minus\" is -1, expected 0 to 18446744073709551615");
  expect_error(file.get_u32("big"), bad, "key \"big\" is 1099511627776, expected 0 to 4294967295");
  expect_error(file.get_f32("nan"), bad, "key \"nan\" is nan, expected a finite number");
  expect_error(file.get_f32("wide"), bad, "key \"wide\" is 1e+300, beyond the range of f32");
  expect_error(file.get_f32("minus"), bad, "key \"minus\" is i32, expected f32 or f64");
  expect_error(file.get_bool("minus"), bad, "key \"minus\" is i32, expected bool");
  expect_error(file.get_string("ints"), bad, "key \"ints\" is array of i32, expected string");
  expect_error(file.get_strings("text"), bad, "key \"text\" is string, expected array of string");
  expect_error(file.get_ints("text"), bad, "key \"text\" is string, expected integers");
  expect_error(file.get_ints("nan"), bad, "key \"nan\" is f32, expected integers");
  expect_error(file.get_ints("huge"), bad,
               "key \"huge\": element 0 is 18446744073709551615, beyond 2^63 - 1");
  expect_error(file.get_u64s("ints"), bad, "key \"ints\": element 1 is -4, expected 0 or more");
  expect_error(file.get_floats("infs"), bad,
               "key \"infs\": element 0 is inf, expected a finite f32");
  expect_error(file.get_bools("ints"), bad, "key \"ints\" is array of i32, expected bools");
}

TEST(GgufReader, FallsBackOnlyWhereTheKeyIsAbsent) {
  RawFile raw;
  raw.keys = {key_u32("n", 3), key_text("s", "v")};
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  EXPECT_EQ(*file.get_u32_or("n", 9), 3u);
  EXPECT_EQ(*file.get_u32_or("gone", 9), 9u);
  EXPECT_EQ(*file.get_f32_or("gone", 0.5f), 0.5f);
  EXPECT_TRUE(*file.get_bool_or("gone", true));
  EXPECT_EQ(*file.get_string_or("s", "w"), "v");
  EXPECT_EQ(*file.get_string_or("gone", "w"), "w");
  EXPECT_FALSE(file.get_u32_or("s", 9).ok());
  EXPECT_FALSE(file.get_bool_or("n", true).ok());
}

TEST(GgufReader, AcceptsAFileWithoutTensorsThatEndsAfterItsKeys) {
  RawFile raw;
  raw.alignment = 1;
  EXPECT_TRUE(must_parse(raw.build()).tensors().empty());
}

TEST(GgufReader, AcceptsMissingPaddingAfterTheLastTensor) {
  RawFile raw = smallest();
  raw.data.resize(8);
  EXPECT_EQ(must_parse(raw.build()).tensors().size(), 1u);
}

TEST(GgufReader, AcceptsAZeroDimensionInTheTable) {
  RawFile raw = smallest();
  raw.tensors.push_back(tensor("none", {0, 7}, 0, 32));
  const File file = must_parse(raw.build());
  EXPECT_EQ(file.find_tensor("none")->n_bytes, 0u);
  EXPECT_EQ(file.find_tensor("none")->n_elements(), 0u);
}

TEST(GgufReader, AcceptsScalarTensorsAndTrailingOnes) {
  RawFile raw;
  raw.tensors = {tensor("s", {}, 0, 0), tensor("m", {2, 1}, 0, 32)};
  raw.data = std::string(64, '\0');
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  EXPECT_EQ(file.find_tensor("s")->n_bytes, 4u);
  EXPECT_EQ(file.find_tensor("m")->ne, (std::array<uint64_t, 4>{2, 1, 1, 1}));
  EXPECT_EQ(shape_text(*file.find_tensor("m")), "(2, 1)");
}

TEST(GgufReader, HonoursTheAlignmentKey) {
  RawFile raw = smallest();
  raw.keys.push_back(key_u32("general.alignment", 8));
  raw.alignment = 8;
  raw.tensors = {tensor("a", {1}, 0, 0), tensor("b", {1}, 0, 8)};
  raw.data = number(1.0f) + u32(0) + number(2.0f);
  const auto bytes = raw.build();
  const File file = must_parse(bytes);
  float value;
  std::memcpy(&value, file.data(*file.find_tensor("b")).data(), sizeof value);
  EXPECT_EQ(value, 2.0f);
}

TEST(GgufReader, WarnsOfGapsAndOfALabelThatNoTensorBears) {
  RawFile raw = smallest();
  raw.keys.push_back(key_u32("general.file_type", 7));
  raw.tensors = {tensor("b", {2}, 0, 96), tensor("a", {2}, 0, 0)};
  raw.data = std::string(128, '\0');
  const File file = must_parse(raw.build());
  ASSERT_EQ(file.warnings().size(), 2u);
  EXPECT_EQ(file.warnings()[0], "1 gap(s) in the data section, the first before tensor \"b\"");
  EXPECT_EQ(file.warnings()[1], "general.file_type 7 says Q8_0, but no tensor has that type");
}

TEST(GgufReader, OpensEveryGoldenModel) {
  for (const char* path :
       {"lfm2vl-tiny/lfm2vl-tiny-f32", "lfm2vl-tiny/mmproj-lfm2vl-tiny-f32",
        "qwen35-tiny/qwen35-tiny-f32", "qwen4exp-budget/qwen4exp-budget-f32",
        "qwen4exp-small/qwen4exp-small-bf16", "qwen4exp-tiny/qwen4exp-tiny-f32"}) {
    const auto file = File::open(std::string(OKIBI_GOLDEN_DIR) + "/" + path + ".gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_GT(file->tensors().size(), 20u) << path;
    EXPECT_TRUE(file->warnings().empty()) << path << ": " << file->warnings().front();
    uint64_t sum = 0;
    for (const TensorInfo& info : file->tensors()) {
      EXPECT_EQ(file->find_tensor(info.name), &info);
      sum += file->data(info).size();
      file->prefetch(info, 0, info.n_bytes);
      file->release(info);
    }
    EXPECT_LT(sum, file->file_bytes());
    EXPECT_GT(sum, file->file_bytes() / 2);
  }
}

TEST(GgufReader, SaysWhichFileIsNotThere) {
  const auto file = File::open("/nowhere/model.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace okibi::gguf
