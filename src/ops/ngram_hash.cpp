#include "ops/ngram_hash.h"

#include "base/check.h"

namespace okibi::ops {

void ngram_window(int32_t token, std::span<const int32_t> before, int32_t reset,
                  std::span<int32_t> window) {
  bool is_cut = false;
  for (size_t s = 0; s < window.size(); ++s) {
    if (s > before.size()) is_cut = true;
    const int32_t id = s == 0 ? token : is_cut ? reset : before[before.size() - s];
    // A reset that is the token itself does not cut its own window.
    if (s > 0 && id == reset) is_cut = true;
    window[s] = id;
  }
}

void ngram_hashes(std::span<const int32_t> window, std::span<const uint64_t> multipliers,
                  std::span<uint64_t> hashes) {
  CHECK(window.size() == multipliers.size() && hashes.size() + 1 == multipliers.size(),
        "%zu ids, %zu multipliers, %zu hashes", window.size(), multipliers.size(), hashes.size());
  uint64_t x = 0;
  for (size_t s = 0; s < window.size(); ++s) {
    x ^= static_cast<uint64_t>(int64_t{window[s]}) * multipliers[s];
    if (s > 0) hashes[s - 1] = x;
  }
}

}  // namespace okibi::ops
