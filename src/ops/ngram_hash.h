// Which rows of its tables a token's hashed n-grams name.
#pragma once

#include <cstdint>
#include <span>

namespace okibi::ops {

// The window of a token: c_0 = `token`, c_s = the id s tokens before it, which is `before`'s s-th
// from its end. Where there is none, or any of the s ids before the token is `reset`, c_s = reset.
void ngram_window(int32_t token, std::span<const int32_t> before, int32_t reset,
                  std::span<int32_t> window);

// The hash of the n-gram c_0 .. c_{n-1}, n = 2 .. multipliers.size(), in hashes[n - 2]:
// c_0 m_0 xor ... xor c_{n-1} m_{n-1}, in 64 bits.
void ngram_hashes(std::span<const int32_t> window, std::span<const uint64_t> multipliers,
                  std::span<uint64_t> hashes);

}  // namespace okibi::ops
