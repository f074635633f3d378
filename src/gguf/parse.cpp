// Reads header, key-values and tensor infos of one file. Every count, length, type and size is
// checked where it is read, with arithmetic that cannot wrap, and nothing is allocated from a
// number alone: containers grow while their bytes are found to be there. Where the tensors lie is
// checked in layout.cpp.
#include "gguf/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked_math.h"
#include "gguf/cursor.h"
#include "gguf/layout.h"
#include "gguf/value.h"

namespace okibi::gguf {
namespace {

constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kMinKeyBytes = 14;     // length, one character, type, one byte of value
constexpr uint64_t kMinTensorBytes = 24;  // length, n_dims, type, offset
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxTensors = 1048576;
constexpr uint64_t kMaxKeyLength = 65535;
constexpr uint64_t kMaxNameLength = 255;
constexpr uint64_t kMaxStringLength = 64ull << 20;
constexpr uint64_t kMaxElements = 1ull << 30;
constexpr uint64_t kMaxAlignment = 1ull << 20;
constexpr uint64_t kMaxSigned = std::numeric_limits<int64_t>::max();

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Parser {
 public:
  explicit Parser(std::span<const uint8_t> bytes) : bytes_(bytes), cursor_(bytes) {}

  Result<ParsedFile> run() {
    OKIBI_RETURN_IF_ERROR(read_header());
    for (uint64_t i = 0; i < n_keys_; ++i) OKIBI_RETURN_IF_ERROR(read_entry(i));
    OKIBI_RETURN_IF_ERROR(index_entries());
    OKIBI_RETURN_IF_ERROR(read_alignment());
    for (uint64_t i = 0; i < n_tensors_; ++i) OKIBI_RETURN_IF_ERROR(read_tensor(i));
    OKIBI_RETURN_IF_ERROR(place_tensors(cursor_.position(), bytes_.size(), &file_));
    return std::move(file_);
  }

 private:
  Status ends_inside(std::string_view what) const {
    return bad_data(fmt::format("the file ends after {} bytes, inside {} (at byte {})",
                                bytes_.size(), what, cursor_.position()));
  }

  Status read_header();
  Status read_string(std::string_view what, uint64_t max, std::string_view* out);
  Status read_entry(uint64_t number);
  Status read_scalar(std::string_view what, Value* value);
  Status read_array(std::string_view what, Value* value);
  Status index_entries();
  Status read_alignment();
  Status read_tensor(uint64_t number);
  Status read_dims(const std::string& what, TensorInfo* info);

  std::span<const uint8_t> bytes_;
  Cursor cursor_;
  uint64_t n_tensors_ = 0, n_keys_ = 0;
  ParsedFile file_;
};

Status Parser::read_header() {
  if (bytes_.size() < kHeaderBytes) {
    return bad_data(fmt::format("{} bytes is too short for a GGUF file, whose header has {}",
                                bytes_.size(), kHeaderBytes));
  }
  std::span<const uint8_t> magic;
  const bool whole = cursor_.take(4, &magic) && cursor_.read(&file_.version) &&
                     cursor_.read(&n_tensors_) && cursor_.read(&n_keys_);
  if (!whole) return ends_inside("the header");
  if (as_text(magic) != "GGUF") {
    return bad_data(fmt::format("not a GGUF file: the first four bytes are {}, expected \"GGUF\"",
                                quoted(as_text(magic))));
  }
  if (file_.version == 0) return bad_data("GGUF version 0 does not exist, expected 2 or 3");
  if ((file_.version & 0xffffu) == 0) {
    return unsupported(
        fmt::format("big-endian GGUF (version reads as 0x{:08x}); only little-endian"
                    " files are supported",
                    file_.version));
  }
  if (file_.version != 2 && file_.version != 3) {
    return unsupported(
        fmt::format("GGUF version {} is not supported, expected 2 or 3", file_.version));
  }
  const uint64_t max_keys = std::min(kMaxKeys, cursor_.remaining() / kMinKeyBytes);
  const uint64_t max_tensors = std::min(kMaxTensors, cursor_.remaining() / kMinTensorBytes);
  if (n_keys_ > max_keys) {
    return bad_data(fmt::format("the header announces {} keys; a file of {} bytes can hold {}",
                                n_keys_, bytes_.size(), max_keys));
  }
  if (n_tensors_ > max_tensors) {
    return bad_data(fmt::format("the header announces {} tensors; a file of {} bytes can hold {}",
                                n_tensors_, bytes_.size(), max_tensors));
  }
  return ok_status();
}

Status Parser::read_string(std::string_view what, uint64_t max, std::string_view* out) {
  uint64_t length;
  if (!cursor_.read(&length)) return ends_inside(what);
  if (length > max) {
    return bad_data(fmt::format("{} has a length of {} bytes, the limit is {}", what, length, max));
  }
  std::span<const uint8_t> text;
  if (!cursor_.take(length, &text)) return ends_inside(what);
  *out = as_text(text);
  return ok_status();
}

Status Parser::read_entry(uint64_t number) {
  File::Entry entry;
  OKIBI_RETURN_IF_ERROR(
      read_string(fmt::format("the name of key {}", number), kMaxKeyLength, &entry.key));
  if (entry.key.empty()) return bad_data(fmt::format("the name of key {} is empty", number));
  for (const char c : entry.key) {
    if (c >= 0x20 && c <= 0x7e) continue;
    return bad_data(fmt::format("the name of key {}, {}, holds a byte that is not printable ASCII",
                                number, quoted(entry.key)));
  }
  const std::string what = "key " + quoted(entry.key);
  uint32_t type;
  if (!cursor_.read(&type)) return ends_inside(what);
  if (type >= kNumValueTypes) {
    return bad_data(fmt::format("{} has value type {}, expected 0 to 12", what, type));
  }
  entry.value.type = static_cast<ValueType>(type);
  if (entry.value.type == ValueType::kArray) {
    OKIBI_RETURN_IF_ERROR(read_array(what, &entry.value));
  } else if (entry.value.type == ValueType::kString) {
    OKIBI_RETURN_IF_ERROR(read_string(what, kMaxStringLength, &entry.value.text));
  } else {
    OKIBI_RETURN_IF_ERROR(read_scalar(what, &entry.value));
  }
  file_.entries.push_back(std::move(entry));
  return ok_status();
}

Status Parser::read_scalar(std::string_view what, Value* value) {
  std::span<const uint8_t> raw;
  if (!cursor_.take(value_type_bytes(value->type), &raw)) return ends_inside(what);
  std::memcpy(&value->bits, raw.data(), raw.size());
  if (value->type == ValueType::kBool && value->bits > 1) {
    return bad_data(fmt::format("{} is a bool with value {}, expected 0 or 1", what, value->bits));
  }
  return ok_status();
}

Status Parser::read_array(std::string_view what, Value* value) {
  uint32_t type;
  if (!cursor_.read(&type) || !cursor_.read(&value->n_elements)) return ends_inside(what);
  value->element_type = static_cast<ValueType>(type);
  if (type >= kNumValueTypes || value->element_type == ValueType::kArray) {
    return bad_data(
        fmt::format("{} is an array with element type {}, expected 0 to 12 but not 9 "
                    "(arrays of arrays are not supported)",
                    what, type));
  }
  if (value->n_elements > kMaxElements) {
    return bad_data(fmt::format("{} is an array of {} elements, the limit is {}", what,
                                value->n_elements, kMaxElements));
  }
  const bool is_text = value->element_type == ValueType::kString;
  const uint64_t width = is_text ? 8 : value_type_bytes(value->element_type);
  // n_elements <= 2^30 and width <= 8: the product is far from wrapping.
  if (value->n_elements * width > cursor_.remaining()) {
    return bad_data(
        fmt::format("{} is an array of {} elements of {} bytes or more, {} bytes remain", what,
                    value->n_elements, width, cursor_.remaining()));
  }
  if (is_text) {
    for (uint64_t i = 0; i < value->n_elements; ++i) {
      std::string_view text;
      OKIBI_RETURN_IF_ERROR(read_string(what, kMaxStringLength, &text));
      value->texts.push_back(text);
    }
    return ok_status();
  }
  if (!cursor_.take(value->n_elements * width, &value->raw)) return ends_inside(what);
  if (value->element_type == ValueType::kBool) {
    for (const uint8_t byte : value->raw) {
      if (byte > 1) {
        return bad_data(fmt::format("{} holds a bool with value {}, expected 0 or 1", what, byte));
      }
    }
  }
  return ok_status();
}

// Sorting finds duplicates in n log n whatever the names are; a hash table could be attacked.
Status Parser::index_entries() {
  std::vector<uint32_t>& order = file_.entries_by_key;
  order.resize(file_.entries.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const std::vector<File::Entry>& entries = file_.entries;
  std::sort(order.begin(), order.end(),
            [&entries](uint32_t a, uint32_t b) { return entries[a].key < entries[b].key; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (entries[order[i]].key == entries[order[i - 1]].key) {
      return bad_data(fmt::format("key {} occurs twice", quoted(entries[order[i]].key)));
    }
  }
  return ok_status();
}

Status Parser::read_alignment() {
  const Value* value = file_.find("general.alignment");
  if (value == nullptr) return ok_status();
  if (value->type != ValueType::kU32) {
    return bad_data(
        fmt::format("key \"general.alignment\" is {}, expected u32", describe_type(*value)));
  }
  const uint64_t alignment = value->bits;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    return bad_data(
        fmt::format("key \"general.alignment\" is {}, expected a power of two from 1 to "
                    "{}",
                    alignment, kMaxAlignment));
  }
  file_.alignment = alignment;
  return ok_status();
}

Status Parser::read_tensor(uint64_t number) {
  TensorInfo info;
  std::string_view name;
  OKIBI_RETURN_IF_ERROR(
      read_string(fmt::format("the name of tensor {}", number), kMaxNameLength, &name));
  if (name.empty()) return bad_data(fmt::format("the name of tensor {} is empty", number));
  if (name.find('\0') != std::string_view::npos) {
    return bad_data(
        fmt::format("the name of tensor {}, {}, holds a NUL byte", number, quoted(name)));
  }
  info.name = name;
  const std::string what = "tensor " + quoted(name);
  OKIBI_RETURN_IF_ERROR(read_dims(what, &info));
  uint32_t type;
  if (!cursor_.read(&type) || !cursor_.read(&info.offset)) return ends_inside(what);
  const DTypeTraits* traits = find_dtype(type);
  if (traits == nullptr) {
    return unsupported(
        fmt::format("{} has type number {}, which is removed or unknown", what, type));
  }
  info.type = traits->type;
  if (info.ne[0] % traits->block_size != 0) {
    return bad_data(fmt::format("{} has rows of {} values, {} needs a multiple of {}", what,
                                info.ne[0], traits->name, traits->block_size));
  }
  uint64_t n_blocks = info.ne[0] / traits->block_size;
  // With a zero dimension the whole is 0; the product over the others was checked by read_dims.
  n_blocks *= info.ne[1] * info.ne[2] * info.ne[3];
  if (!checked_mul(n_blocks, traits->block_bytes, &info.n_bytes)) {
    return bad_data(fmt::format("{} of shape {} and type {} has more bytes than 64 bits count",
                                what, shape_text(info), traits->name));
  }
  file_.tensors.push_back(std::move(info));
  return ok_status();
}

Status Parser::read_dims(const std::string& what, TensorInfo* info) {
  uint32_t n_dims;
  if (!cursor_.read(&n_dims)) return ends_inside(what);
  if (n_dims > 4) {
    return bad_data(fmt::format("{} has {} dimensions, at most 4 are possible", what, n_dims));
  }
  info->n_dims = static_cast<int>(n_dims);
  // A zero counts as one, so that what is accepted does not depend on the order of dimensions.
  uint64_t product = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    if (!cursor_.read(&info->ne[i])) return ends_inside(what);
    const uint64_t factor = std::max<uint64_t>(info->ne[i], 1);
    if (!checked_mul(product, factor, &product) || product > kMaxSigned) {
      return bad_data(fmt::format("{} has dimension {} = {}: more than 2^63 - 1 elements in all",
                                  what, i, info->ne[i]));
    }
  }
  return ok_status();
}

}  // namespace

const Value* ParsedFile::find(std::string_view key) const {
  const auto at = std::lower_bound(
      entries_by_key.begin(), entries_by_key.end(), key,
      [this](uint32_t index, std::string_view wanted) { return entries[index].key < wanted; });
  if (at == entries_by_key.end() || entries[*at].key != key) return nullptr;
  return &entries[*at].value;
}

Result<ParsedFile> parse_file(std::span<const uint8_t> bytes) {
  return Parser(bytes).run();
}

}  // namespace okibi::gguf
