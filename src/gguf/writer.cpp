// Writes a GGUF file under a temporary name; see writer.h. Keys are encoded as they are set;
// offsets are all known before the first byte is written. A key or tensor that the format cannot
// hold is an error of begin(), so that the setters need no status.
#include "gguf/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "base/check.h"
#include "base/checked_math.h"
#include "gguf/value.h"

namespace okibi::gguf {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1ull << 20;
constexpr size_t kMaxNameLength = 63;  // what every reader takes
constexpr size_t kMaxKeyLength = 65535;
constexpr size_t kBufferBytes = 1u << 20;

using Bytes = std::vector<uint8_t>;

void append(Bytes* out, const void* data, size_t n) {
  const size_t old_size = out->size();
  out->resize(old_size + n);
  if (n > 0) std::memcpy(out->data() + old_size, data, n);
}
template <typename T>
void append_number(Bytes* out, T number) {
  append(out, &number, sizeof number);
}
void append_text(Bytes* out, std::string_view text) {
  append_number<uint64_t>(out, text.size());
  append(out, text.data(), text.size());
}

struct Key {
  std::string name;
  ValueType type;
  Bytes value;  // as it stands in the file, after the type
};

struct PlannedTensor {
  std::string name;
  DType type;
  std::vector<uint64_t> ne;
  uint64_t n_bytes = 0;
  uint64_t offset = 0;  // in the data section
};

Status check_key(const Key& key) {
  bool fits = !key.name.empty() && key.name.size() <= kMaxKeyLength;
  for (const char c : key.name) fits &= c >= 0x20 && c <= 0x7e;
  if (fits) return ok_status();
  return invalid_argument(fmt::format("key {}: expected 1 to {} printable ASCII characters",
                                      quoted(key.name), kMaxKeyLength));
}

// Fills n_bytes.
Status check_tensor(PlannedTensor* tensor) {
  const std::string what = "tensor " + quoted(tensor->name);
  if (tensor->name.empty() || tensor->name.size() > kMaxNameLength ||
      tensor->name.find('\0') != std::string::npos) {
    return invalid_argument(
        fmt::format("{}: expected a name of 1 to {} bytes without NUL", what, kMaxNameLength));
  }
  if (tensor->ne.size() > 4) {
    return invalid_argument(
        fmt::format("{} has {} dimensions, at most 4 are possible", what, tensor->ne.size()));
  }
  const DTypeTraits& traits = traits_of(tensor->type);
  uint64_t n_blocks = 1;
  for (size_t i = 0; i < tensor->ne.size(); ++i) {
    const uint64_t ne = tensor->ne[i];
    const uint64_t unit = i == 0 ? traits.block_size : 1;
    if (ne == 0 || ne % unit != 0 || !checked_mul(n_blocks, ne / unit, &n_blocks)) {
      return invalid_argument(
          fmt::format("{}: dimension {} is {}, expected a positive multiple of "
                      "{} and a size that 64 bits count",
                      what, i, ne, unit));
    }
  }
  if (tensor->ne.empty() && traits.block_size != 1) {
    return invalid_argument(fmt::format("{}: a scalar cannot be {}", what, traits.name));
  }
  if (!checked_mul(n_blocks, traits.block_bytes, &tensor->n_bytes)) {
    return invalid_argument(fmt::format("{} has more bytes than 64 bits count", what));
  }
  return ok_status();
}

}  // namespace

struct Writer::State {
  std::vector<Key> keys;
  std::map<std::string, size_t, std::less<>> places;  // of keys, until begin()
  std::vector<PlannedTensor> tensors;
  uint64_t alignment = kDefaultAlignment;

  bool begun = false;
  std::string path, temporary_path;
  int fd = -1;
  Bytes buffer;           // not yet written, ends at `position`
  uint64_t position = 0;  // in the file
  uint64_t data_begin = 0;
  size_t current = 0;       // tensor whose bytes come next
  uint64_t done_bytes = 0;  // of the current tensor

  ~State() { discard(); }

  void discard() {
    if (fd < 0) return;
    ::close(fd);
    fd = -1;
    ::unlink(temporary_path.c_str());
  }

  void set(std::string_view name, ValueType type, Bytes value) {
    CHECK(!begun, "a key is set after begin()");
    const auto [at, is_new] = places.emplace(name, keys.size());
    if (is_new) {
      keys.push_back({std::string(name), type, std::move(value)});
    } else {
      keys[at->second].type = type;
      keys[at->second].value = std::move(value);
    }
  }

  template <typename T>
  void set_scalar(std::string_view name, ValueType type, T number) {
    Bytes value;
    append_number(&value, number);
    set(name, type, std::move(value));
  }

  template <typename T>
  void set_array(std::string_view name, ValueType type, std::span<const T> numbers) {
    Bytes value;
    append_number(&value, static_cast<uint32_t>(type));
    append_number<uint64_t>(&value, numbers.size());
    append(&value, numbers.data(), numbers.size_bytes());
    set(name, ValueType::kArray, std::move(value));
  }

  Status failed(std::string_view what) {
    return unavailable(
        fmt::format("{}: cannot {}: {}", temporary_path, what, std::strerror(errno)));
  }

  Status take_alignment();
  Status plan_tensors();
  Bytes header() const;
  Status flush();
  Status put(std::span<const uint8_t> bytes);
  Status seek(uint64_t to);
  Status end_tensor();
};

// The alignment key is written only where it differs from the default.
Status Writer::State::take_alignment() {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].name != "general.alignment") continue;
    uint32_t value = 0;
    if (keys[i].type == ValueType::kU32) std::memcpy(&value, keys[i].value.data(), sizeof value);
    if (value == 0 || (value & (value - 1)) != 0 || value > kMaxAlignment) {
      return invalid_argument(
          fmt::format("key \"general.alignment\": expected a u32 that is a power "
                      "of two from 1 to {}",
                      kMaxAlignment));
    }
    alignment = value;
    if (alignment == kDefaultAlignment) keys.erase(keys.begin() + static_cast<ptrdiff_t>(i));
    return ok_status();
  }
  return ok_status();
}

Status Writer::State::plan_tensors() {
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (PlannedTensor& tensor : tensors) {
    OKIBI_RETURN_IF_ERROR(check_tensor(&tensor));
    if (!names.insert(tensor.name).second) {
      return invalid_argument(fmt::format("tensor {} is declared twice", quoted(tensor.name)));
    }
    tensor.offset = offset;
    if (!checked_add(offset, tensor.n_bytes, &offset) ||
        !checked_align_up(offset, alignment, &offset)) {
      return invalid_argument(fmt::format("the sizes up to tensor {} add up to more than 64 bits",
                                          quoted(tensor.name)));
    }
  }
  return ok_status();
}

Bytes Writer::State::header() const {
  Bytes out;
  append(&out, "GGUF", 4);
  append_number<uint32_t>(&out, 3);
  append_number<uint64_t>(&out, tensors.size());
  append_number<uint64_t>(&out, keys.size());
  for (const Key& key : keys) {
    append_text(&out, key.name);
    append_number(&out, static_cast<uint32_t>(key.type));
    append(&out, key.value.data(), key.value.size());
  }
  for (const PlannedTensor& tensor : tensors) {
    append_text(&out, tensor.name);
    append_number(&out, static_cast<uint32_t>(tensor.ne.size()));
    for (const uint64_t ne : tensor.ne) append_number(&out, ne);
    append_number(&out, static_cast<uint32_t>(tensor.type));
    append_number(&out, tensor.offset);
  }
  out.resize(align_up(out.size(), alignment), 0);
  return out;
}

Status Writer::State::flush() {
  size_t done = 0;
  const uint64_t start = position - buffer.size();
  while (done < buffer.size()) {
    const ssize_t n =
        ::pwrite(fd, buffer.data() + done, buffer.size() - done, static_cast<off_t>(start + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("write");
    done += static_cast<size_t>(n);
  }
  buffer.clear();
  return ok_status();
}

Status Writer::State::put(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBufferBytes - buffer.size());
    append(&buffer, bytes.data(), n);
    position += n;
    bytes = bytes.subspan(n);
    if (buffer.size() == kBufferBytes) OKIBI_RETURN_IF_ERROR(flush());
  }
  return ok_status();
}

// What lies between stays a hole, which reads as zero.
Status Writer::State::seek(uint64_t to) {
  OKIBI_RETURN_IF_ERROR(flush());
  position = to;
  return ok_status();
}

Status Writer::State::end_tensor() {
  const PlannedTensor& tensor = tensors[current];
  const uint64_t end = data_begin + align_up(tensor.offset + tensor.n_bytes, alignment);
  ++current;
  done_bytes = 0;
  const uint64_t padding = end - position;
  if (padding > kBufferBytes) return seek(end);
  const Bytes zeros(padding, 0);
  return put(zeros);
}

Writer::Writer() : state_(std::make_unique<State>()) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

void Writer::set_u32(std::string_view key, uint32_t value) {
  state_->set_scalar(key, ValueType::kU32, value);
}
void Writer::set_i32(std::string_view key, int32_t value) {
  state_->set_scalar(key, ValueType::kI32, value);
}
void Writer::set_u64(std::string_view key, uint64_t value) {
  state_->set_scalar(key, ValueType::kU64, value);
}
void Writer::set_f32(std::string_view key, float value) {
  state_->set_scalar(key, ValueType::kF32, value);
}
void Writer::set_bool(std::string_view key, bool value) {
  state_->set_scalar(key, ValueType::kBool, static_cast<uint8_t>(value));
}
void Writer::set_string(std::string_view key, std::string_view value) {
  Bytes bytes;
  append_text(&bytes, value);
  state_->set(key, ValueType::kString, std::move(bytes));
}
void Writer::set_strings(std::string_view key, std::span<const std::string> values) {
  Bytes bytes;
  append_number(&bytes, static_cast<uint32_t>(ValueType::kString));
  append_number<uint64_t>(&bytes, values.size());
  for (const std::string& value : values) append_text(&bytes, value);
  state_->set(key, ValueType::kArray, std::move(bytes));
}
void Writer::set_i32s(std::string_view key, std::span<const int32_t> values) {
  state_->set_array(key, ValueType::kI32, values);
}
void Writer::set_u32s(std::string_view key, std::span<const uint32_t> values) {
  state_->set_array(key, ValueType::kU32, values);
}
void Writer::set_u64s(std::string_view key, std::span<const uint64_t> values) {
  state_->set_array(key, ValueType::kU64, values);
}
void Writer::set_f32s(std::string_view key, std::span<const float> values) {
  state_->set_array(key, ValueType::kF32, values);
}
void Writer::set_bools(std::string_view key, std::span<const bool> values) {
  Bytes flags;
  for (const bool value : values) flags.push_back(value ? 1 : 0);
  state_->set_array(key, ValueType::kBool, std::span<const uint8_t>(flags));
}

void Writer::copy(const File::Entry& entry) {
  const Value& value = entry.value;
  Bytes bytes;
  if (value.type == ValueType::kString) {
    append_text(&bytes, value.text);
  } else if (value.type != ValueType::kArray) {
    append(&bytes, &value.bits, value_type_bytes(value.type));  // little-endian: low bytes first
  } else {
    append_number(&bytes, static_cast<uint32_t>(value.element_type));
    append_number(&bytes, value.n_elements);
    append(&bytes, value.raw.data(), value.raw.size());
    for (const std::string_view text : value.texts) append_text(&bytes, text);
  }
  state_->set(entry.key, value.type, std::move(bytes));
}

void Writer::remove(std::string_view key) {
  CHECK(!state_->begun, "a key is removed after begin()");
  const auto at = state_->places.find(key);
  if (at == state_->places.end()) return;
  const size_t place = at->second;
  state_->keys.erase(state_->keys.begin() + static_cast<ptrdiff_t>(place));
  state_->places.erase(at);
  for (auto& [name, other] : state_->places) other -= other > place;
}

void Writer::add_tensor(std::string_view name, DType type, std::span<const uint64_t> ne) {
  CHECK(!state_->begun, "a tensor is declared after begin()");
  state_->tensors.push_back({std::string(name), type, {ne.begin(), ne.end()}});
}

Status Writer::begin(const std::string& path) {
  State& s = *state_;
  CHECK(!s.begun, "begin() is called twice");
  for (const Key& key : s.keys) OKIBI_RETURN_IF_ERROR(check_key(key));
  OKIBI_RETURN_IF_ERROR(s.take_alignment());
  OKIBI_RETURN_IF_ERROR(s.plan_tensors());
  // Readers look for the architecture first, and some insist on its place.
  const auto first = std::find_if(s.keys.begin(), s.keys.end(), [](const Key& key) {
    return key.name == "general.architecture";
  });
  if (first != s.keys.end()) std::rotate(s.keys.begin(), first, first + 1);

  s.begun = true;
  s.path = path;
  s.temporary_path = fmt::format("{}.tmp{}", path, ::getpid());
  s.fd = ::open(s.temporary_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (s.fd < 0) return s.failed("create");
  const Bytes header = s.header();
  s.data_begin = header.size();
  return s.put(header);
}

Status Writer::write(std::span<const uint8_t> bytes) {
  State& s = *state_;
  CHECK(s.fd >= 0 && s.current < s.tensors.size(), "no tensor is due");
  const PlannedTensor& tensor = s.tensors[s.current];
  CHECK(bytes.size() <= tensor.n_bytes - s.done_bytes, "%s: too many bytes", tensor.name.c_str());
  OKIBI_RETURN_IF_ERROR(s.put(bytes));
  s.done_bytes += bytes.size();
  return s.done_bytes == tensor.n_bytes ? s.end_tensor() : ok_status();
}

Status Writer::skip_tensor() {
  State& s = *state_;
  CHECK(s.fd >= 0 && s.current < s.tensors.size() && s.done_bytes == 0, "no tensor is due");
  const PlannedTensor& tensor = s.tensors[s.current];
  OKIBI_RETURN_IF_ERROR(s.seek(s.data_begin + tensor.offset + tensor.n_bytes));
  return s.end_tensor();
}

Status Writer::finish() {
  State& s = *state_;
  CHECK(s.fd >= 0, "finish() without begin()");
  CHECK(s.current == s.tensors.size(), "%zu of %zu tensors are written", s.current,
        s.tensors.size());
  OKIBI_RETURN_IF_ERROR(s.flush());
  if (::ftruncate(s.fd, static_cast<off_t>(s.position)) != 0) return s.failed("set the size");
  if (::fsync(s.fd) != 0) return s.failed("sync");
  if (::close(std::exchange(s.fd, -1)) != 0) {
    const Status status = s.failed("close");
    ::unlink(s.temporary_path.c_str());
    return status;
  }
  if (::rename(s.temporary_path.c_str(), s.path.c_str()) != 0) {
    const Status status = s.failed("rename to " + s.path);
    ::unlink(s.temporary_path.c_str());
    return status;
  }
  // The new name is durable once its folder is.
  const size_t slash = s.path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : s.path.substr(0, slash + 1);
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0) {
    ::fsync(folder_fd);
    ::close(folder_fd);
  }
  return ok_status();
}

}  // namespace okibi::gguf
