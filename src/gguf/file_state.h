// What a gguf::File owns. Private to reader.cpp and getters.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gguf/parse.h"
#include "gguf/reader.h"
#include "platform/file_map.h"

namespace okibi::gguf {

struct File::State {
  std::string path;
  std::vector<FileMap> maps;                     // empty for a file in memory
  std::vector<std::span<const uint8_t>> shards;  // the bytes of each
  ParsedFile keys;                               // of shard 0, tensors moved out
  std::vector<TensorInfo> tensors;               // of all shards
  std::vector<uint32_t> tensors_by_name;         // indices, names ascending
  std::vector<std::string> warnings;

  void add_shard(FileMap map, ParsedFile parsed);
  void merge(ParsedFile parsed, uint32_t shard);
};

}  // namespace okibi::gguf
