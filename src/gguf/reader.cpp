// Opens one file or all shards of a split one and answers questions about them. The structure of a
// file is checked in parse.cpp and layout.cpp; the typed getters are in getters.cpp.
#include "gguf/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "gguf/file_state.h"
#include "gguf/parse.h"
#include "gguf/split.h"
#include "gguf/value.h"

namespace okibi::gguf {
namespace {

// All tensors by name; a name may occur once over all shards.
Result<std::vector<uint32_t>> index_tensors(const std::vector<TensorInfo>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&tensors](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (tensors[order[i]].name == tensors[order[i - 1]].name) {
      return bad_data(fmt::format("tensor {} occurs twice", quoted(tensors[order[i]].name)));
    }
  }
  return order;
}

// Checks that `found` is shard `number` (from 0) of the same split as `expected`.
Status check_shard(const SplitKeys& found, const SplitKeys& expected, uint32_t number) {
  if (found.count != expected.count) {
    return bad_data(fmt::format("split.count is {}, expected {} as in the shard that was named",
                                found.count, expected.count));
  }
  if (found.number != number) {
    return bad_data(
        fmt::format("split.no is {}, expected {} by the file's name", found.number, number));
  }
  if (found.n_tensors != expected.n_tensors) {
    return bad_data(
        fmt::format("split.tensors.count is {}, expected {} as in the shard that was named",
                    found.n_tensors, expected.n_tensors));
  }
  return ok_status();
}

struct OpenedFile {
  FileMap map;
  ParsedFile parsed;
};

Result<OpenedFile> open_one(const std::string& path) {
  OKIBI_ASSIGN_OR_RETURN(FileMap map, FileMap::open(path));
  auto parsed = parse_file(map.bytes());
  if (!parsed.ok()) return parsed.status().with_context(path);
  return OpenedFile{std::move(map), std::move(parsed).value()};
}

}  // namespace

// Takes over what was parsed; tensors of later shards are appended.
void File::State::add_shard(FileMap map, ParsedFile parsed) {
  const uint32_t shard = static_cast<uint32_t>(shards.size());
  shards.push_back(map.bytes());
  maps.push_back(std::move(map));
  merge(std::move(parsed), shard);
}

void File::State::merge(ParsedFile parsed, uint32_t shard) {
  for (TensorInfo& info : parsed.tensors) {
    info.shard = shard;
    tensors.push_back(std::move(info));
  }
  for (std::string& warning : parsed.warnings) warnings.push_back(std::move(warning));
  parsed.tensors.clear();
  parsed.warnings.clear();
  if (shard == 0) keys = std::move(parsed);
}

Result<File> File::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  OKIBI_ASSIGN_OR_RETURN(OpenedFile named, open_one(path));
  auto split = read_split_keys(named.parsed);
  if (!split.ok()) return split.status().with_context(path);
  uint64_t n_tensors = named.parsed.tensors.size();
  if (split->count <= 1) {
    state->add_shard(std::move(named.map), std::move(named.parsed));
  } else {
    const auto name = parse_shard_name(path);
    if (!name || name->count != split->count) {
      return bad_data(
          fmt::format("{}: shard {} of {} by its keys, expected a name that ends in "
                      "-{:05d}-of-{:05d}.gguf",
                      path, split->number + 1, split->count, split->number + 1, split->count));
    }
    for (uint32_t i = 0; i < split->count; ++i) {
      const std::string shard_path = i + 1 == name->number ? path : name->path_of(i + 1);
      OKIBI_ASSIGN_OR_RETURN(OpenedFile shard, open_one(shard_path));
      auto keys = read_split_keys(shard.parsed);
      if (!keys.ok()) return keys.status().with_context(shard_path);
      OKIBI_RETURN_IF_ERROR(check_shard(*keys, *split, i).with_context(shard_path));
      state->add_shard(std::move(shard.map), std::move(shard.parsed));
    }
    n_tensors = split->n_tensors;
  }
  if (state->tensors.size() != n_tensors) {
    return bad_data(fmt::format("{}: the {} shards hold {} tensors, split.tensors.count says {}",
                                path, split->count, state->tensors.size(), n_tensors));
  }
  auto order = index_tensors(state->tensors);
  if (!order.ok()) return order.status().with_context(path);
  state->tensors_by_name = std::move(order).value();
  return File(std::move(state));
}

Result<File> File::parse(std::span<const uint8_t> bytes, std::string_view name) {
  auto state = std::make_unique<State>();
  state->path = name;
  auto parsed = parse_file(bytes);
  if (!parsed.ok()) return parsed.status().with_context(name);
  auto split = read_split_keys(*parsed);
  if (!split.ok()) return split.status().with_context(name);
  if (split->count > 1) {
    return unsupported(fmt::format("{}: shard {} of {}; a split file must be opened by its path",
                                   name, split->number + 1, split->count));
  }
  state->shards.push_back(bytes);
  state->merge(std::move(parsed).value(), 0);
  auto order = index_tensors(state->tensors);
  if (!order.ok()) return order.status().with_context(name);
  state->tensors_by_name = std::move(order).value();
  return File(std::move(state));
}

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

const std::string& File::path() const {
  return state_->path;
}
uint32_t File::version() const {
  return state_->keys.version;
}
size_t File::n_shards() const {
  return state_->shards.size();
}

uint64_t File::file_bytes() const {
  uint64_t total = 0;
  for (const auto& shard : state_->shards) total += shard.size();
  return total;
}

const std::vector<File::Entry>& File::entries() const {
  return state_->keys.entries;
}
const Value* File::find(std::string_view key) const {
  return state_->keys.find(key);
}
const std::vector<TensorInfo>& File::tensors() const {
  return state_->tensors;
}
const std::vector<std::string>& File::warnings() const {
  return state_->warnings;
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  const std::vector<uint32_t>& order = state_->tensors_by_name;
  const std::vector<TensorInfo>& tensors = state_->tensors;
  const auto at = std::lower_bound(
      order.begin(), order.end(), name,
      [&tensors](uint32_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  if (at == order.end() || tensors[*at].name != name) return nullptr;
  return &tensors[*at];
}

std::span<const uint8_t> File::data(const TensorInfo& info) const {
  CHECK(info.shard < state_->shards.size(), "shard %u", info.shard);
  return state_->shards[info.shard].subspan(info.offset, info.n_bytes);
}

void File::release(const TensorInfo& info) const {
  if (info.shard < state_->maps.size()) {
    state_->maps[info.shard].release(info.offset, info.n_bytes);
  }
}

void File::prefetch(const TensorInfo& info, uint64_t offset, uint64_t n_bytes) const {
  if (info.shard >= state_->maps.size() || offset >= info.n_bytes) return;
  state_->maps[info.shard].prefetch(info.offset + offset, std::min(n_bytes, info.n_bytes - offset));
}

void File::prefetch(const uint8_t* data, uint64_t n_bytes) const {
  for (const FileMap& map : state_->maps) {
    const std::span<const uint8_t> bytes = map.bytes();
    if (data < bytes.data() || data >= bytes.data() + bytes.size()) continue;
    const auto offset = static_cast<uint64_t>(data - bytes.data());
    map.prefetch(offset, std::min(n_bytes, bytes.size() - offset));
  }
}

}  // namespace okibi::gguf
