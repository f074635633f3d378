#include "base/hash.h"

#include <openssl/evp.h>

#include <cstring>

#include "base/check.h"

namespace okibi {

uint64_t fnv1a(std::span<const uint8_t> bytes, uint64_t seed) {
  uint64_t h = seed;
  for (uint8_t b : bytes) h = (h ^ b) * 0x100000001b3ull;
  return h;
}

uint64_t hash_floats(std::span<const float> values, uint64_t seed) {
  uint64_t h = seed;
  for (float v : values) {
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    h = (h ^ bits) * 0x100000001b3ull;
    h ^= h >> 29;  // FNV alone lets the low bits of a 32-bit step mix too slowly
  }
  return h;
}

Sha256Stream::Sha256Stream() {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  context_ = context;
}

Sha256Stream::~Sha256Stream() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}

void Sha256Stream::update(std::span<const uint8_t> bytes) {
  CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size()) == 1);
}

Sha256 Sha256Stream::finish() {
  Sha256 digest{};
  unsigned int length = 0;
  CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length) == 1);
  return digest;
}

Sha256 sha256(std::span<const uint8_t> bytes) {
  Sha256Stream stream;
  stream.update(bytes);
  return stream.finish();
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

}  // namespace okibi
