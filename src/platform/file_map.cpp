#include "platform/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace okibi {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

Result<FileMap> FileMap::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string why = std::strerror(errno);
    return errno == ENOENT ? not_found(path + ": no such file")
                           : unavailable(path + ": cannot open: " + why);
  }
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return invalid_argument(path + ": not a regular file");
  }
  FileMap map;
  map.size_ = static_cast<size_t>(st.st_size);
  if (map.size_ > 0) {
    void* p = ::mmap(nullptr, map.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
      const std::string why = std::strerror(errno);
      ::close(fd);
      return unavailable(path + ": cannot map: " + why);
    }
    map.data_ = static_cast<const uint8_t*>(p);
  }
  ::close(fd);
  return map;
}

FileMap::FileMap(FileMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void FileMap::release(uint64_t offset, uint64_t n_bytes) const {
  // Only whole pages inside the range: a neighbour may still be in use.
  const uint64_t begin = (offset + kPage - 1) / kPage * kPage;
  const uint64_t end = (offset + n_bytes) / kPage * kPage;
  if (data_ == nullptr || end <= begin || end > size_) return;
  ::madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void FileMap::prefetch(uint64_t offset, uint64_t n_bytes) const {
  const uint64_t begin = offset / kPage * kPage;
  if (data_ == nullptr || offset >= size_) return;
  const uint64_t length = std::min<uint64_t>(n_bytes + (offset - begin), size_ - begin);
  ::madvise(const_cast<uint8_t*>(data_) + begin, length, MADV_WILLNEED);
}

Result<MappedBuffer> MappedBuffer::allocate(uint64_t n_bytes, bool huge) {
  MappedBuffer buffer;
  if (n_bytes == 0) return buffer;
  // A huge page needs its own alignment: mapped with room to spare, cut to size.
  const uint64_t spare = huge && n_bytes >= kHugePage ? kHugePage : 0;
  void* p = ::mmap(nullptr, n_bytes + spare, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return resource_exhausted("cannot map " + std::to_string(n_bytes) +
                              " bytes: " + std::strerror(errno));
  }
  if (spare != 0) {
    auto* begin = static_cast<uint8_t*>(p);
    const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage) % kHugePage;
    // The end of the mapping is on a page, n_bytes need not be.
    const uint64_t used = before + (n_bytes + kPage - 1) / kPage * kPage;
    const uint64_t mapped = (n_bytes + spare + kPage - 1) / kPage * kPage;
    if (before > 0) ::munmap(begin, before);
    if (mapped > used) ::munmap(begin + used, mapped - used);
    p = begin + before;
  }
  if (huge) ::madvise(p, n_bytes, MADV_HUGEPAGE);
  buffer.data_ = static_cast<uint8_t*>(p);
  buffer.size_ = n_bytes;
  return buffer;
}

MappedBuffer::MappedBuffer(MappedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedBuffer& MappedBuffer::operator=(MappedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedBuffer::~MappedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedBuffer::discard(uint64_t offset, uint64_t n_bytes) {
  const uint64_t begin = (offset + kPage - 1) / kPage * kPage;
  const uint64_t end = std::min(offset + n_bytes, size_) / kPage * kPage;
  if (end > begin) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

uint64_t available_memory_bytes() {
  std::FILE* f = std::fopen("/proc/meminfo", "r");
  if (f == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, f) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  }
  std::fclose(f);
  return static_cast<uint64_t>(kib) * 1024;
}

uint64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace okibi
