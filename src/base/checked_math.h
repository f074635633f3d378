// Size arithmetic on numbers that came from a file: never wraps, says when it would.
#pragma once

#include <cstdint>

namespace okibi {

// *out = a + b (a * b); false and *out untouched when the result does not fit 64 bits.
[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t* out) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
[[nodiscard]] inline bool checked_mul(uint64_t a, uint64_t b, uint64_t* out) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
// Smallest multiple of `alignment` (a power of two) that is >= a.
[[nodiscard]] inline bool checked_align_up(uint64_t a, uint64_t alignment, uint64_t* out) {
  uint64_t r;
  if (!checked_add(a, alignment - 1, &r)) return false;
  *out = r & ~(alignment - 1);
  return true;
}
// For sizes that are already known to be small.
constexpr uint64_t align_up(uint64_t a, uint64_t alignment) {
  return (a + alignment - 1) / alignment * alignment;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace okibi
