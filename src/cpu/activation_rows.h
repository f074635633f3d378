// How quantised activation rows lie in a buffer, one format at a time: all q, then all scales, then
// all sums (Activations in kernel_table.h).
#pragma once

#include <algorithm>

#include "base/checked_math.h"
#include "cpu/kernel_table.h"

namespace okibi::cpu {

// Rows of exactly a multiple of 4 KiB would all fall into the same sets of the first-level cache.
constexpr int64_t padded_stride(int64_t n, int64_t element_bytes) {
  constexpr int64_t kCacheSetSpan = 4096;
  int64_t bytes = static_cast<int64_t>(align_up(static_cast<uint64_t>(n * element_bytes), 64));
  if (bytes % kCacheSetSpan == 0) bytes += 64;
  return bytes / element_bytes;
}

struct Q8Strides {
  int64_t q = 0, d = 0, sums = 0;  // bytes, floats, and int32 or int16 values
  uint64_t bytes_per_row = 0;
};

constexpr Q8Strides q8_strides(ActivationFormat format, int64_t n_in) {
  const bool small = format == ActivationFormat::kQ8B32;
  Q8Strides s;
  s.q = padded_stride(n_in, 1);
  s.d = static_cast<int64_t>(align_up(static_cast<uint64_t>(ceil_div(n_in, small ? 32 : 256)), 16));
  s.sums = small ? s.d : static_cast<int64_t>(align_up(static_cast<uint64_t>(n_in) / 16 + 1, 32));
  s.bytes_per_row = static_cast<uint64_t>(s.q + 4 * s.d + (small ? 4 : 2) * s.sums);
  return s;
}

// n_rows rows of n_in values in `data`, not written yet.
inline Activations lay_out_q8(ActivationFormat format, int64_t n_in, int64_t n_rows,
                              uint8_t* data) {
  const Q8Strides s = q8_strides(format, n_in);
  Activations a;
  a.q = reinterpret_cast<int8_t*>(data);
  a.q_stride = s.q;
  data += n_rows * s.q;
  a.d = reinterpret_cast<float*>(data);
  a.d_stride = s.d;
  data += n_rows * s.d * static_cast<int64_t>(sizeof(float));
  if (format == ActivationFormat::kQ8B32) {
    a.sums32 = reinterpret_cast<int32_t*>(data);
  } else {
    a.sums16 = reinterpret_cast<int16_t*>(data);
    a.sums16_stride = s.sums;
  }
  return a;
}

// The same activations from row `row` on. Not for tiles.
inline Activations rows_from(Activations a, int64_t row) {
  if (a.x != nullptr) a.x += row * a.x_stride;
  if (a.q != nullptr) {
    a.q += row * a.q_stride;
    a.d += row * a.d_stride;
    if (a.sums32 != nullptr) a.sums32 += row * a.d_stride;
    if (a.sums16 != nullptr) a.sums16 += row * a.sums16_stride;
  }
  return a;
}

}  // namespace okibi::cpu
