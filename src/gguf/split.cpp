// See split.h.
#include "gguf/split.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

namespace okibi::gguf {
namespace {

constexpr size_t kDigits = 5;

std::optional<uint32_t> parse_number(std::string_view digits) {
  uint32_t n = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + static_cast<uint32_t>(c - '0');
  }
  return n;
}

Result<uint64_t> required(const ParsedFile& file, std::string_view key, uint64_t max) {
  const Value* value = file.find(key);
  if (value == nullptr) {
    return bad_data(fmt::format("key \"{}\" is missing from a shard of a split file", key));
  }
  return integer_value(key, *value, max);
}

}  // namespace

std::string ShardName::path_of(uint32_t number_from_1) const {
  return fmt::format("{}-{:05d}-of-{:05d}.gguf", prefix, number_from_1, count);
}

std::optional<ShardName> parse_shard_name(const std::string& path) {
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr size_t kSuffix = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() < kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(path).substr(path.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(1 + kDigits, kOf.size()) != kOf ||
      suffix.substr(kSuffix - kEnd.size()) != kEnd) {
    return std::nullopt;
  }
  const auto number = parse_number(suffix.substr(1, kDigits));
  const auto count = parse_number(suffix.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return ShardName{path.substr(0, path.size() - kSuffix), *number, *count};
}

Result<SplitKeys> read_split_keys(const ParsedFile& file) {
  constexpr uint64_t kMaxShards = 65535;
  SplitKeys keys;
  const Value* count = file.find("split.count");
  if (count == nullptr) return keys;
  OKIBI_ASSIGN_OR_RETURN(const uint64_t n, integer_value("split.count", *count, kMaxShards));
  keys.count = static_cast<uint32_t>(n);
  if (n <= 1) return keys;
  OKIBI_ASSIGN_OR_RETURN(const uint64_t number, required(file, "split.no", n - 1));
  OKIBI_ASSIGN_OR_RETURN(
      keys.n_tensors, required(file, "split.tensors.count", std::numeric_limits<int32_t>::max()));
  keys.number = static_cast<uint32_t>(number);
  return keys;
}

}  // namespace okibi::gguf
