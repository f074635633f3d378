// The structure of one GGUF file, checked: header, key-values and tensor directory. Knows nothing
// of other shards or of paths; reader.cpp puts files together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "okibi/status.h"

namespace okibi::gguf {

struct ParsedFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<File::Entry> entries;
  std::vector<uint32_t> entries_by_key;  // indices, keys ascending
  std::vector<TensorInfo> tensors;       // offsets from the start of the file; shard 0
  std::vector<std::string> warnings;

  const Value* find(std::string_view key) const;
};

// Everything in the result points into `bytes`. Messages do not name the file.
Result<ParsedFile> parse_file(std::span<const uint8_t> bytes);

// The typed reading that both File and the split checks use: any integer type, in range.
Result<uint64_t> integer_value(std::string_view key, const Value& value, uint64_t max);

}  // namespace okibi::gguf
