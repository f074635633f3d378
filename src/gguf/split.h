// Split files: which shard a file is, and the names of its siblings. All names come from the given
// path by its number suffix alone, so a file cannot make the reader open anything else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gguf/parse.h"
#include "okibi/status.h"

namespace okibi::gguf {

// "dir/m-00002-of-00003.gguf" has prefix "dir/m", number 2, count 3.
struct ShardName {
  std::string prefix;
  uint32_t number = 0;  // from 1
  uint32_t count = 0;

  std::string path_of(uint32_t number_from_1) const;
};
std::optional<ShardName> parse_shard_name(const std::string& path);

// The split.* keys of one file; count 0 or 1 means that it is not split.
struct SplitKeys {
  uint32_t number = 0;  // from 0
  uint32_t count = 0;
  uint64_t n_tensors = 0;  // over all shards
};
Result<SplitKeys> read_split_keys(const ParsedFile& file);

}  // namespace okibi::gguf
