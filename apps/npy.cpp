// See npy.h.
#include "apps/npy.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace okibi::apps {

std::string npy_header(std::string_view descr, std::span<const uint64_t> shape) {
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 descr, fmt::join(shape, ", "));
  // Magic, version and length take 10 bytes; the data begins at a multiple of 64, after a newline.
  while ((10 + dict.size() + 1) % 64 != 0 || 10 + dict.size() + 1 < 128) dict += ' ';
  dict += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

Result<NpyWriter> NpyWriter::create(const std::string& path, uint64_t n_rows, uint64_t n_cols) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return unavailable(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
  NpyWriter writer(path, file, n_rows, n_cols);
  const uint64_t shape[] = {n_rows, n_cols};
  const std::string header = npy_header("<f4", shape);
  if (std::fwrite(header.data(), 1, header.size(), file) != header.size()) {
    writer.fail(std::strerror(errno));
    return writer.status_;
  }
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      n_rows_(other.n_rows_),
      n_cols_(other.n_cols_),
      n_written_(other.n_written_),
      status_(std::move(other.status_)) {}

NpyWriter::~NpyWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(path_.c_str());
}

void NpyWriter::write_row(std::span<const float> row) {
  if (!status_.ok()) return;
  if (row.size() != n_cols_ || n_written_ == n_rows_) {
    fail(fmt::format("row {} of {} values came; expected {} rows of {}", n_written_, row.size(),
                     n_rows_, n_cols_));
    return;
  }
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_) != row.size()) {
    fail(std::strerror(errno));
    return;
  }
  ++n_written_;
}

Status NpyWriter::finish() {
  if (status_.ok() && n_written_ != n_rows_) {
    fail(fmt::format("{} of {} rows were written", n_written_, n_rows_));
  }
  if (!status_.ok()) return status_;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed) {
    fail(std::strerror(errno));
    std::remove(path_.c_str());
  }
  return status_;
}

void NpyWriter::fail(std::string what) {
  status_ = unavailable(fmt::format("{}: {}", path_, std::move(what)));
}

}  // namespace okibi::apps
