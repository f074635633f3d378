// Attention inside a view with factors rounded to bfloat16, for levels with units for such
// products. Plain data, so ISA files may include it. Everything else about a row stays its own: its
// exact maximum over all keys, its sum, the order of keys.
//   s_j = q . k_j, both rounded to bfloat16 (to nearest, halves away from zero), summed by the unit
//     in float32, pairs of dims in order;
//   p_j = bfloat16(2^(s_j c - max c)), c = scale / ln 2, the power to 8e-5; l = sum p_j in 16 lanes
//     (lane = j mod 16) and their tree;
//   o = (sum p_j v_j) / l, v rounded to bfloat16, pairs of keys in order.
#pragma once

#include <cstdint>

namespace okibi::cpu {

constexpr int64_t kViewTileQueries = 32;
constexpr int64_t round_up_32(int64_t n) {
  return (n + 31) / 32 * 32;
}
// One head's packed keys, and its packed values: both have this many bytes.
constexpr int64_t view_packed_bytes(int64_t n_keys, int64_t head_dim) {
  return round_up_32(n_keys) * round_up_32(head_dim) * 2;
}
// Queries, scores, weights and results of a tile, and a sum per row; rows of scores and weights are
// padded so that they do not fall into the same cache sets.
constexpr int64_t view_scratch_bytes(int64_t n_keys, int64_t head_dim) {
  return kViewTileQueries * (6 * round_up_32(head_dim) + 6 * round_up_32(n_keys) + 128 + 64);
}

// One head's keys and values of a view: (n_keys, head_dim) each, rows `stride` floats apart, the
// bias of the head added first.
struct ViewPackArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t k_stride = 0, v_stride = 0;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  int64_t n_keys = 0, head_dim = 0;
  uint8_t* keys = nullptr;    // view_packed_bytes, 64-byte aligned
  uint8_t* values = nullptr;  // the same
};

struct ViewAttendArgs {
  const float* q = nullptr;  // (n_queries, head_dim) of one head, rows q_stride floats apart
  const float* q_bias = nullptr;
  int64_t q_stride = 0;
  int64_t n_queries = 0;  // 1 .. kViewTileQueries
  int64_t n_keys = 0, head_dim = 0;
  float scale = 1.0f;               // positive
  const uint8_t* keys = nullptr;    // packed, 64-byte aligned
  const uint8_t* values = nullptr;  // packed, 64-byte aligned
  float* out = nullptr;             // (n_queries, head_dim), rows out_stride floats apart
  int64_t out_stride = 0;
  uint8_t* scratch = nullptr;  // view_scratch_bytes, 64-byte aligned
};

struct ViewAttendKernels {
  void (*pack)(const ViewPackArgs& args) = nullptr;
  void (*attend)(const ViewAttendArgs& args) = nullptr;
  const char* name = nullptr;
};

}  // namespace okibi::cpu
