// A file mapped read-only, and memory mapped for buffers that grow by touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "okibi/status.h"

namespace okibi {

// Move-only. The mapping stays valid while the object lives; a file that shrinks under it is the
// user's act and faults (the reader re-checks sizes when it reads lazily).
class FileMap {
 public:
  static Result<FileMap> open(const std::string& path);
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  ~FileMap();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // Tells the system that this part will not be read again soon, so that it leaves our resident
  // size. Reading it later is allowed and slow.
  void release(uint64_t offset, uint64_t n_bytes) const;
  // Asks the system to start reading this part.
  void prefetch(uint64_t offset, uint64_t n_bytes) const;

 private:
  FileMap() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Zeroed, page-aligned memory that costs physical pages only where touched. Move-only.
class MappedBuffer {
 public:
  MappedBuffer() = default;
  // Zeroed. `huge` asks for transparent huge pages, worth it for weights; the buffer then begins on
  // one.
  static Result<MappedBuffer> allocate(uint64_t n_bytes, bool huge);
  MappedBuffer(MappedBuffer&& other) noexcept;
  MappedBuffer& operator=(MappedBuffer&& other) noexcept;
  ~MappedBuffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Gives the physical pages of this part back; it reads as zero afterwards.
  void discard(uint64_t offset, uint64_t n_bytes);

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

// Bytes of physical memory that the system says new work could take, and this process's peak
// resident size so far.
uint64_t available_memory_bytes();
uint64_t peak_resident_bytes();

}  // namespace okibi
