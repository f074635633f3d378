// Any bytes as a GGUF file: parsing may refuse them, but what it accepts must be safe to use. Every
// key is read through every getter, every tensor's bytes are touched and its first blocks
// dequantised.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gguf/check_data.h"
#include "gguf/reader.h"
#include "tensor/dequantize.h"

namespace okibi::gguf {
namespace {

uint64_t read_entries(const File& file) {
  uint64_t sum = 0;
  for (const File::Entry& entry : file.entries()) {
    if (file.find(entry.key) != &entry.value) std::abort();  // the index must agree with the list
    for (const uint8_t byte : entry.value.raw) sum += byte;
    for (const std::string_view text : entry.value.texts) {
      for (const char c : text) sum += static_cast<uint8_t>(c);
    }
    for (const char c : entry.value.text) sum += static_cast<uint8_t>(c);
    sum += file.get_u64(entry.key).ok() + file.get_u32(entry.key).ok() +
           file.get_f64(entry.key).ok() + file.get_f32(entry.key).ok() +
           file.get_bool(entry.key).ok() + file.get_string(entry.key).ok() +
           file.get_strings(entry.key).ok() + file.get_ints(entry.key).ok() +
           file.get_u64s(entry.key).ok() + file.get_floats(entry.key).ok() +
           file.get_bools(entry.key).ok();
  }
  return sum;
}

uint64_t read_tensors(const File& file) {
  uint64_t sum = 0;
  std::vector<float> row;
  for (const TensorInfo& info : file.tensors()) {
    const auto bytes = file.data(info);
    if (bytes.size() != info.n_bytes || file.find_tensor(info.name) != &info) std::abort();
    for (const uint8_t byte : bytes) sum += byte;
    sum += check_tensor_data(file, info).ok() + shape_text(info).size();
    const DTypeTraits& traits = traits_of(info.type);
    if (!traits.is_weight) continue;
    const uint64_t n =
        std::min<uint64_t>(info.n_elements(), 512) / traits.block_size * traits.block_size;
    row.resize(n);
    dequantize_row(info.type, bytes.data(), static_cast<int64_t>(n), row.data());
  }
  return sum;
}

}  // namespace
}  // namespace okibi::gguf

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = okibi::gguf::File::parse({data, size}, "fuzz.gguf");
  if (!file.ok()) {
    if (file.status().message().size() > 1000) std::abort();  // messages quote, they do not copy
    return 0;
  }
  static volatile uint64_t sink;
  sink = okibi::gguf::read_entries(*file) + okibi::gguf::read_tensors(*file);
  (void)sink;
  return 0;
}
