// Handles to what a backend keeps. Cheap to copy, valid while their backend lives.
#pragma once

#include <cstdint>

namespace okibi::ops {

struct Weight {
  int32_t id = -1;
  int64_t n_in = 0, n_out = 0;
  int64_t n_matrices = 1;  // of this shape: experts
  bool valid() const { return id >= 0; }
};
struct Vector {
  int32_t id = -1;
  int64_t n = 0;
  bool valid() const { return id >= 0; }
};
struct Rows {
  int32_t id = -1;
  int64_t cols = 0;
  bool valid() const { return id >= 0; }
};
struct Rope {
  int32_t id = -1;
};

}  // namespace okibi::ops
