// Attention inside a view with factors rounded to bfloat16, for levels with units for such
// products. Plain data, so ISA files may include it. Everything else about a row stays its own: its
// exact maximum over all keys, its sum, the order of keys.
//   s_j = q . k_j, both rounded to bfloat16 (to nearest, halves away from zero), summed by the unit
//     in float32, pairs of dims in order;
//   p_j = 2^(s_j c - max c), c = scale / ln 2, the power to 8e-5; l = sum p_j in 32 lanes
//     (lane = j mod 32) and their tree;
//   o = (sum bfloat16(p_j) v_j) / l, v rounded to bfloat16, pairs of keys in order.
#pragma once

#include <cstdint>

namespace okibi::cpu {

constexpr int64_t kViewTileQueries = 16;
constexpr int64_t round_up_32(int64_t n) {
  return (n + 31) / 32 * 32;
}
// Queries, keys and values of a head, biases added, rounded, in tiles of 1 KiB:
//   queries: [32 dims][16 queries]   tile row p = the dims of query p
//   keys:    [32 dims][16 keys]      tile row p = dims 2p, 2p + 1 of each key
//   values:  [16 dims][32 keys]      tile row p = keys 2p, 2p + 1 of each dim
// Rows are padded to 32, dims to 32 with zeros. Each of the three has this many bytes.
constexpr int64_t view_packed_bytes(int64_t n_rows, int64_t head_dim) {
  return round_up_32(n_rows) * round_up_32(head_dim) * 2;
}
// Results and scores of a tile of queries; rows of scores are padded so that they do not fall into
// the same cache sets.
constexpr int64_t view_scratch_bytes(int64_t n_rows, int64_t head_dim) {
  return kViewTileQueries * (4 * round_up_32(head_dim) + 4 * round_up_32(n_rows) + 64);
}

// One head's rows of a view: (n_rows, head_dim) each, rows `stride` floats apart, the biases of the
// head added first.
struct ViewPackArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  int64_t n_rows = 0, head_dim = 0;
  uint8_t* queries = nullptr;  // 64-byte aligned, as the next two
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
};

struct ViewAttendArgs {
  const uint8_t* queries = nullptr;  // of the whole view
  const uint8_t* keys = nullptr;
  const uint8_t* values = nullptr;
  int64_t n_rows = 0, head_dim = 0;
  int64_t first_query = 0;  // a multiple of kViewTileQueries; the queries from there on
  float scale = 1.0f;       // positive
  float* out = nullptr;     // of the first query, rows out_stride floats apart
  int64_t out_stride = 0;
  uint8_t* scratch = nullptr;  // view_scratch_bytes, 64-byte aligned
};

struct ViewAttendKernels {
  void (*pack)(const ViewPackArgs& args) = nullptr;
  void (*attend)(const ViewAttendArgs& args) = nullptr;
  const char* name = nullptr;
};

}  // namespace okibi::cpu
