#include "model/file_identity.h"

#include <string>

namespace okibi::model {
namespace {

// Every piece is preceded by its length, so that no two lists of pieces read the same.
class Pieces {
 public:
  void add(std::span<const uint8_t> bytes) {
    add_number(bytes.size());
    stream_.update(bytes);
  }
  void add(std::string_view text) { add(bytes_of(text)); }
  void add_number(uint64_t n) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(n >> (8 * i));
    stream_.update(bytes);
  }
  Sha256 finish() { return stream_.finish(); }

 private:
  Sha256Stream stream_;
};

}  // namespace

Sha256 file_identity(const gguf::File& file, bool with_data) {
  Pieces pieces;
  for (const gguf::File::Entry& entry : file.entries()) {
    const gguf::Value& v = entry.value;
    pieces.add(entry.key);
    pieces.add_number(static_cast<uint64_t>(v.type));
    pieces.add_number(v.bits);
    pieces.add(v.text);
    pieces.add_number(static_cast<uint64_t>(v.element_type));
    pieces.add_number(v.n_elements);
    for (const std::string_view text : v.texts) pieces.add(text);
    pieces.add(v.raw);
  }
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    pieces.add(tensor.name);
    pieces.add_number(static_cast<uint64_t>(tensor.type));
    for (const uint64_t n : tensor.ne) pieces.add_number(n);
    if (with_data) pieces.add(file.data(tensor));
  }
  return pieces.finish();
}

}  // namespace okibi::model
