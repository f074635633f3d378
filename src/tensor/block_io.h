// Reading and writing fields of quantised blocks at any byte offset: little-endian, no alignment.
// Owns no layout; those stand where they are used (dequantize*.cpp, quantize*.cpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "base/f16.h"

namespace okibi {

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint32_t load_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline float load_f16(const uint8_t* p) {
  return f16_to_float(load_u16(p));
}

inline void store_u16(uint8_t* p, uint16_t v) {
  std::memcpy(p, &v, sizeof v);
}
inline void store_u32(uint8_t* p, uint32_t v) {
  std::memcpy(p, &v, sizeof v);
}
inline void store_f16(uint8_t* p, float v) {
  store_u16(p, float_to_f16(v));
}

}  // namespace okibi
