// Reads the GGUF container: header, key-values, tensor directory, split files. All is checked
// here, once; what a File offers afterwards is safe to use. Knows no model. A model file is hostile
// until `open` has returned it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "okibi/status.h"
#include "platform/file_map.h"
#include "tensor/dtype.h"

namespace okibi::gguf {

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view value_type_name(ValueType type);

// A metadata value. Scalars of integer type are kept as written; arrays of numbers stay in the file
// and are converted when asked for.
struct Value {
  ValueType type = ValueType::kU8;
  ValueType element_type = ValueType::kU8;  // of arrays
  uint64_t n_elements = 0;                  // of arrays
  uint64_t bits = 0;                        // scalar: the raw bits, zero-extended
  std::string_view text;                    // string: points into the map
  std::vector<std::string_view> texts;      // array of strings
  std::span<const uint8_t> raw;             // array of numbers: packed little-endian elements
};

struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  int n_dims = 0;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};  // ne[0] is the row length; trailing ones filled in
  uint64_t n_bytes = 0;
  uint32_t shard = 0;
  uint64_t offset = 0;  // from the start of the shard's file

  uint64_t n_elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  uint64_t n_rows() const { return ne[1] * ne[2] * ne[3]; }
};
std::string shape_text(const TensorInfo& info);  // "(4096, 1024)"

// Move-only; owns the mappings. Views it hands out live as long as it does.
class File {
 public:
  // Opens `path`; when it is one shard of a split file, the siblings beside it too. The error names
  // the file, the key or tensor, what was found and what was expected.
  static Result<File> open(const std::string& path);
  // The same for one complete file in memory (tests, fuzzing); `bytes` must outlive the File.
  static Result<File> parse(std::span<const uint8_t> bytes, std::string_view name);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::string& path() const;
  uint32_t version() const;
  size_t n_shards() const;
  uint64_t file_bytes() const;  // of all shards together

  // Keys of shard 0, in file order.
  struct Entry {
    std::string_view key;
    Value value;
  };
  const std::vector<Entry>& entries() const;
  const Value* find(std::string_view key) const;  // null when absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Typed getters. A missing key or one of the wrong type is an error that names the key. Integers
  // accept every integer type and are range-checked; floats accept f32 and f64.
  Result<uint64_t> get_u64(std::string_view key) const;
  Result<uint32_t> get_u32(std::string_view key) const;
  Result<double> get_f64(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;  // finite
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  // Arrays of any integer (float) element type; a scalar gives one element.
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;
  Result<std::vector<uint64_t>> get_u64s(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  Result<std::vector<bool>> get_bools(std::string_view key) const;

  // Same, with `fallback` when the key is absent (a wrong type stays an error).
  Result<uint32_t> get_u32_or(std::string_view key, uint32_t fallback) const;
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

  // Tensors of all shards, in file order.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find_tensor(std::string_view name) const;
  std::span<const uint8_t> data(const TensorInfo& info) const;
  // See FileMap: the tensor's bytes will not be needed again soon / will be needed soon.
  void release(const TensorInfo& info) const;
  void prefetch(const TensorInfo& info, uint64_t offset, uint64_t n_bytes) const;
  // The same for bytes inside what `data` gave.
  void prefetch(const uint8_t* data, uint64_t n_bytes) const;

  // Things that are odd but legal (a gap between tensors, a label that contradicts the types).
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  explicit File(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace okibi::gguf
