// Damaged and malicious files: each must be refused with a message about the damage, quickly and
// without large allocations.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <random>

#include "gguf/reader.h"
#include "unit/gguf_bytes.h"
#include "unit/golden_quants.h"

namespace okibi::gguf {
namespace {

using namespace gguf_bytes;  // NOLINT: the builders read better bare

std::string golden_path() {
  return std::string(OKIBI_GOLDEN_DIR) + "/lfm2vl-tiny/mmproj-lfm2vl-tiny-f32.gguf";
}

struct HostileFile {
  std::string what;
  std::vector<uint8_t> bytes;
  std::string message;  // must occur in the error
};

std::vector<uint8_t> changed(const std::function<void(RawFile&)>& change) {
  RawFile raw = smallest();
  change(raw);
  return raw.build();
}

std::vector<uint8_t> with_key(const std::string& bytes) {
  return changed([&](RawFile& raw) { raw.keys.push_back(bytes); });
}

std::vector<uint8_t> with_tensor(const std::string& bytes) {
  return changed([&](RawFile& raw) { raw.tensors.push_back(bytes); });
}

std::vector<HostileFile> hostile_headers() {
  static constexpr uint64_t kHuge = 1ull << 63;
  return {
      {"nothing", {}, "0 bytes is too short"},
      {"23 bytes", std::vector<uint8_t>(23, 'G'), "23 bytes is too short"},
      {"magic", changed([](RawFile& r) { r.magic = "GGML"; }), "first four bytes are \"GGML\""},
      {"version 0", changed([](RawFile& r) { r.version = 0; }), "version 0"},
      {"version 1", changed([](RawFile& r) { r.version = 1; }), "version 1"},
      {"version 4", changed([](RawFile& r) { r.version = 4; }), "version 4"},
      {"big-endian", changed([](RawFile& r) { r.version = 0x03000000; }), "big-endian"},
      {"2^63 keys", changed([](RawFile& r) { r.n_keys = kHuge; }), "9223372036854775808 keys"},
      {"2^63 tensors", changed([](RawFile& r) { r.n_tensors = kHuge; }),
       "9223372036854775808 tensors"},
      {"one key too many", changed([](RawFile& r) { r.n_keys = 2; }), "tensor 0 is empty"},
      {"one tensor too many", changed([](RawFile& r) { r.n_tensors = 2; }), "is empty"},
  };
}

std::vector<HostileFile> hostile_keys() {
  const std::string zero("general.alignment\0x", 19);
  return {
      {"key length 2^64-1", with_key(u64(~0ull) + "abc"), "18446744073709551615 bytes, the limit"},
      {"key length 65536", with_key(u64(65536) + std::string(65536, 'k')), "65536 bytes"},
      {"key past the end", with_key(u64(60000) + "abc"), "the file ends"},
      {"empty key", with_key(key_u32("", 1)), "the name of key 1 is empty"},
      {"NUL in key", with_key(key_u32(zero, 1)), "\"general.alignment\\x00x\""},
      {"control byte in key", with_key(key_u32("a\nb", 1)), "not printable ASCII"},
      {"duplicate key", with_key(key_text("general.architecture", "y")), "occurs twice"},
      {"value type 13", with_key(key("k", 13, u64(0))), "value type 13"},
      {"value type 2^32-1", with_key(key("k", ~0u, u64(0))), "value type 4294967295"},
      {"array of arrays", with_key(key_array("k", 9, 1, u32(4) + u64(0))), "element type 9"},
      {"array of type 13", with_key(key_array("k", 13, 1, u64(0))), "element type 13"},
      {"array count 2^61", with_key(key_array("k", 12, 1ull << 61, u64(0))), "2305843009213693952"},
      {"array count 2^64-1", with_key(key_array("k", 0, ~0ull, "")), "the limit is"},
      {"array past the end", with_key(key_array("k", 5, 1 << 20, u64(0))), "1048576 elements"},
      {"texts past the end", with_key(key_array("k", 8, 1 << 20, u64(0))), "1048576 elements"},
      {"long text in array", with_key(key_array("k", 8, 1, u64(1 << 30))), "1073741824 bytes"},
      {"text 2^64-1", with_key(key("k", 8, u64(~0ull))), "18446744073709551615 bytes"},
      {"text past the end", with_key(key("k", 8, u64(60000))), "the file ends"},
      {"bool 2", with_key(key("k", 7, "\2")), "bool with value 2"},
      {"bool 255 in array", with_key(key_array("k", 7, 2, "\1\xff")), "bool with value 255"},
      {"alignment 0", with_key(key_u32("general.alignment", 0)), "general.alignment\" is 0"},
      {"alignment 12", with_key(key_u32("general.alignment", 12)), "is 12, expected a power"},
      {"alignment 2^31", with_key(key_u32("general.alignment", 1u << 31)), "is 2147483648"},
      {"alignment as u64", with_key(key("general.alignment", 10, u64(32))), "is u64, expected u32"},
      {"alignment as text", with_key(key_text("general.alignment", "32")), "is string"},
  };
}

std::vector<HostileFile> hostile_tensors() {
  constexpr uint64_t k32 = 1ull << 32, k62 = 1ull << 62;
  const std::string nul("b\0c", 3);
  return {
      {"name of 300 bytes", with_tensor(tensor(std::string(300, 'n'), {2}, 0, 0)), "300 bytes"},
      {"empty name", with_tensor(tensor("", {2}, 0, 0)), "the name of tensor 1 is empty"},
      {"NUL in name", with_tensor(tensor(nul, {2}, 0, 0)), "\"b\\x00c\", holds a NUL"},
      {"duplicate name", with_tensor(tensor("a", {0}, 0, 0)), "tensor \"a\" occurs twice"},
      {"5 dimensions", with_tensor(tensor("b", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions"},
      {"2^32-1 dimensions", with_tensor(text("b") + u32(~0u)), "4294967295 dimensions"},
      {"product 2^64", with_tensor(tensor("b", {k32, k32}, 0, 0)), "more than 2^63 - 1"},
      {"product 2^63", with_tensor(tensor("b", {k32, k32 / 2}, 24, 0)), "more than 2^63 - 1"},
      {"negative dimension", with_tensor(tensor("b", {~0ull}, 0, 0)), "more than 2^63 - 1"},
      {"2^62 2^62 0", with_tensor(tensor("b", {k62, k62, 0}, 0, 0)), "more than 2^63 - 1"},
      {"0 2^62 2^62", with_tensor(tensor("b", {0, k62, k62}, 0, 0)), "more than 2^63 - 1"},
      {"bytes 2^64-16", with_tensor(tensor("b", {4, (1 << 30) - 1, (1 << 30) + 1}, 0, 0)),
       "18446744073709551600 bytes"},
      {"bytes beyond 2^64", with_tensor(tensor("b", {k62}, 28, 0)), "more bytes than 64 bits"},
      {"33 in a Q4_0 row", with_tensor(tensor("b", {33}, 2, 0)), "rows of 33 values"},
      {"128 in a Q4_K row", with_tensor(tensor("b", {128, 2}, 12, 0)), "rows of 128 values"},
      {"type 4", with_tensor(tensor("b", {32}, 4, 0)), "type number 4"},
      {"type 31", with_tensor(tensor("b", {32}, 31, 0)), "type number 31"},
      {"type 43", with_tensor(tensor("b", {32}, 43, 0)), "type number 43"},
      {"type 2^32-1", with_tensor(tensor("b", {32}, ~0u, 0)), "type number 4294967295"},
      {"offset 1", with_tensor(tensor("b", {1}, 0, 1)), "has offset 1"},
      {"offset past the end", with_tensor(tensor("b", {1}, 0, 1 << 20)), "1048576"},
      {"offset near 2^64", with_tensor(tensor("b", {8}, 0, ~0ull - 31)), "18446744073709551584"},
      {"size past the end", with_tensor(tensor("b", {9}, 0, 0)), "36 bytes at offset 0"},
      {"overlap", with_tensor(tensor("b", {8}, 0, 0)), "share bytes"},
      {"no data section", changed([](RawFile& r) {
         r.alignment = 1;
         r.data = "";
       }),
       "data section should start"},
  };
}

TEST(GgufHostile, RefusesEveryKnownAttackWithAMessageAboutIt) {
  for (const auto& files : {hostile_headers(), hostile_keys(), hostile_tensors()}) {
    for (const HostileFile& file : files) {
      const auto result = File::parse(file.bytes, "bad.gguf");
      ASSERT_FALSE(result.ok()) << file.what;
      const std::string& message = result.status().message();
      EXPECT_EQ(message.rfind("bad.gguf: ", 0), 0u) << message;
      EXPECT_NE(message.find(file.message), std::string::npos) << file.what << ": " << message;
      EXPECT_LT(message.size(), 500u) << file.what;
    }
  }
}

TEST(GgufHostile, ATensorPastTheTableCapIsRefusedBeforeItsInfosAreRead) {
  RawFile raw;
  raw.n_tensors = 1048577;
  raw.data = std::string(30 << 20, '\0');
  const auto bytes = raw.build();
  const auto result = File::parse(bytes, "x");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("can hold 1048576"), std::string::npos);
}

// An exact copy on the heap, so that a sanitizer sees the first byte read past the end.
bool parses(const uint8_t* data, size_t n) {
  const std::vector<uint8_t> copy(data, data + n);
  return File::parse(copy, "cut.gguf").ok();
}

TEST(GgufHostile, EveryTruncationOfAGoldenFileIsRefused) {
  const auto bytes = golden::read_file(golden_path());
  const auto whole = File::parse(bytes, "whole");
  ASSERT_TRUE(whole.ok());
  uint64_t data_begin = bytes.size(), data_end = 0;
  for (const TensorInfo& info : whole->tensors()) {
    data_begin = std::min(data_begin, info.offset);
    data_end = std::max(data_end, info.offset + info.n_bytes);
  }
  for (uint64_t n = 0; n <= data_begin; ++n) EXPECT_FALSE(parses(bytes.data(), n)) << n;
  for (uint64_t n = 0; n < data_end; n += 1024) EXPECT_FALSE(parses(bytes.data(), n)) << n;
  EXPECT_FALSE(parses(bytes.data(), data_end - 1));
  EXPECT_TRUE(parses(bytes.data(), data_end));
}

// What a parsed file offers must be safe to touch, whatever the bytes were.
uint64_t touch_everything(const File& file) {
  uint64_t sum = 0;
  for (const File::Entry& entry : file.entries()) {
    sum += entry.key.size() + entry.value.text.size() + entry.value.raw.size();
    for (const std::string_view text : entry.value.texts) sum += text.size();
    sum += file.get_ints(entry.key).ok() + file.get_floats(entry.key).ok() +
           file.get_bools(entry.key).ok() + file.get_u64s(entry.key).ok() +
           file.get_u32(entry.key).ok() + file.get_f32(entry.key).ok();
  }
  for (const TensorInfo& info : file.tensors()) {
    for (const uint8_t byte : file.data(info)) sum += byte;
    sum += file.find_tensor(info.name) == &info;
  }
  return sum;
}

TEST(GgufHostile, RandomDamageNeverCrashes) {
  RawFile raw = smallest();
  raw.keys.push_back(key_array("texts", 8, 3, text("one") + text("two") + text("three")));
  raw.keys.push_back(key_array("ints", 5, 4, u64(1) + u64(2)));
  raw.keys.push_back(key_u32("general.alignment", 32));
  raw.tensors.push_back(tensor("b", {32, 2}, 8, 32));
  raw.data += std::string(96, '\5');
  const auto small = raw.build();
  const auto golden = golden::read_file(golden_path());
  const std::vector<uint8_t> head(golden.begin(), golden.begin() + 16384);
  ASSERT_TRUE(File::parse(small, "small").ok());
  std::mt19937 rng(11);
  uint64_t n_read = 0, sum = 0;
  for (int round = 0; round < 30000; ++round) {
    std::vector<uint8_t> bytes = round % 4 ? small : head;
    for (int k = 1 + static_cast<int>(rng() % 3); k > 0; --k) {
      const size_t at = rng() % (round % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 200));
      bytes[at] = static_cast<uint8_t>(rng() % 3 ? bytes[at] ^ (1u << (rng() % 8)) : rng());
    }
    const auto file = File::parse(bytes, "flipped.gguf");
    if (!file.ok()) continue;
    ++n_read;
    sum += touch_everything(*file);
  }
  EXPECT_GT(n_read, 1000u);  // damage in names and data is no damage to the structure
  EXPECT_GT(sum, 0u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// With an address space of a few MiB more than the process has, any allocation made from a count in
// the file would end it.
TEST(GgufHostileDeathTest, AbsurdCountsAllocateNextToNothing) {
  std::vector<std::vector<uint8_t>> files;
  for (const uint64_t count : {65536ull, 1ull << 20, 1ull << 28, 1ull << 30, 1ull << 61, ~0ull}) {
    files.push_back(changed([&](RawFile& r) { r.n_keys = count; }));
    files.push_back(changed([&](RawFile& r) { r.n_tensors = count; }));
    files.push_back(with_key(u64(count) + "k"));
    for (const uint32_t type : {0u, 7u, 8u, 12u}) {
      files.push_back(with_key(key_array("k", type, count, u64(count))));
    }
    files.push_back(with_tensor(tensor("b", {count, count}, 0, 0)));
  }
  EXPECT_EXIT(
      {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 8u << 20;  // data segment; grown further only by mistake
        setrlimit(RLIMIT_DATA, &limit);
        int n_accepted = 0;
        for (const auto& bytes : files) n_accepted += File::parse(bytes, "absurd").ok();
        std::_Exit(n_accepted);
      },
      testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace okibi::gguf
