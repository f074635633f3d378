// Writes NumPy's .npy format: one float32 matrix, row by row, so that it never stands in memory.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "okibi/status.h"

namespace okibi::apps {

// The 128 bytes or more before the data, version 1.0. `descr` is "<f4" for float32, "|u1" for
// bytes.
std::string npy_header(std::string_view descr, std::span<const uint64_t> shape);

// Move-only. A file that is not finished is removed: half a matrix would load as a whole one does.
class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, uint64_t n_rows, uint64_t n_cols);
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&& other) = delete;
  ~NpyWriter();

  // The next row. The first failure is kept and told by finish().
  void write_row(std::span<const float> row);
  Status finish();

 private:
  NpyWriter(std::string path, std::FILE* file, uint64_t n_rows, uint64_t n_cols)
      : path_(std::move(path)), file_(file), n_rows_(n_rows), n_cols_(n_cols) {}
  void fail(std::string what);

  std::string path_;
  std::FILE* file_ = nullptr;
  uint64_t n_rows_ = 0, n_cols_ = 0, n_written_ = 0;
  Status status_;
};

}  // namespace okibi::apps
