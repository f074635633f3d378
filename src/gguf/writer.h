// Writes GGUF version 3 files: keys first, then tensors in the order they were declared, each
// streamed so that no file has to fit into memory. The file appears under its name only when it is
// complete (temporary file, fsync, rename).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "okibi/status.h"
#include "tensor/dtype.h"

namespace okibi::gguf {

class Writer {
 public:
  Writer();
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // an unfinished file is removed

  // Keys, in the order written. A key given twice keeps its place and takes the later value.
  void set_u32(std::string_view key, uint32_t value);
  void set_i32(std::string_view key, int32_t value);
  void set_u64(std::string_view key, uint64_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_u32s(std::string_view key, std::span<const uint32_t> values);
  void set_u64s(std::string_view key, std::span<const uint64_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set_bools(std::string_view key, std::span<const bool> values);
  // Copies a value as it stands in another file.
  void copy(const File::Entry& entry);
  void remove(std::string_view key);

  // Declares a tensor; ne is in GGUF order, trailing ones may be left out.
  void add_tensor(std::string_view name, DType type, std::span<const uint64_t> ne);

  // Checks names and shapes, writes header, keys and directory. After this nothing can be declared.
  Status begin(const std::string& path);
  // Next bytes of the tensors, in declaration order; pieces may be of any size and may not cross
  // from one tensor into the next. Padding is written by the writer.
  Status write(std::span<const uint8_t> bytes);
  // Skips the data of the next tensor, leaving a hole that reads as zero (sparse files).
  Status skip_tensor();
  // All data written: sync and rename.
  Status finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace okibi::gguf
