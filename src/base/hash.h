// Two hashes: FNV-1a for telling logits and caches apart in tests and logs, SHA-256 for identities
// that must not collide on purpose (model files, pictures).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace okibi {

// 64-bit FNV-1a over bytes; `seed` chains several pieces.
constexpr uint64_t kFnvOffset = 0xcbf29ce484222325ull;
uint64_t fnv1a(std::span<const uint8_t> bytes, uint64_t seed = kFnvOffset);
// Over the bit patterns of floats, eight bytes at a time: the "logits hash" every run can print.
uint64_t hash_floats(std::span<const float> values, uint64_t seed = kFnvOffset);

using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::span<const uint8_t> bytes);
inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::string to_hex(std::span<const uint8_t> bytes);

// Incremental form, for files larger than one would want to map.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;
  void update(std::span<const uint8_t> bytes);
  Sha256 finish();

 private:
  void* context_;
};

}  // namespace okibi
