// The 12 bytes of Q4_K and Q5_K that hold eight pairs of 6-bit numbers: scale and minimum of each
// group of 32. Plain data and shifts only; used by the reader and the writer of those blocks.
#pragma once

#include <cstdint>

namespace okibi::blocks {

struct ScalePair {
  uint8_t scale;
  uint8_t min;
};

inline ScalePair unpack_scale_pair(const uint8_t* s, int g) {
  if (g < 4) return {static_cast<uint8_t>(s[g] & 63), static_cast<uint8_t>(s[g + 4] & 63)};
  return {static_cast<uint8_t>((s[g + 4] & 15) | ((s[g - 4] >> 6) << 4)),
          static_cast<uint8_t>((s[g + 4] >> 4) | ((s[g] >> 6) << 4))};
}

// `s` starts as zeros; groups may come in any order.
inline void pack_scale_pair(uint8_t* s, int g, ScalePair pair) {
  if (g < 4) {
    s[g] |= pair.scale;
    s[g + 4] |= pair.min;
    return;
  }
  s[g + 4] |= static_cast<uint8_t>((pair.scale & 15) | (pair.min & 15) << 4);
  s[g - 4] |= static_cast<uint8_t>((pair.scale >> 4) << 6);
  s[g] |= static_cast<uint8_t>((pair.min >> 4) << 6);
}

}  // namespace okibi::blocks
