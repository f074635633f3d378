// Attention inside a view with factors rounded to bfloat16, for levels with units for such
// products. Plain data, so ISA files may include it. Everything else about a row stays its own: its
// reference, its sum, the order of keys.
//   s_j = q . k_j, both rounded to bfloat16 (to nearest, halves away from zero), summed by the unit
//     in float32, pairs of dims in order; c = scale / ln 2, so that weights are powers of two;
//   M, an integer: the floor of the largest s_j c of the first kViewBlockKeys keys. A later block
//     with a w_j of 2^15 or more (a power of 16 above 2^M) makes M the same of itself, and what was
//     summed before falls by that power of two;
//   w_j = 512 (s_j c - M + 60) + 2 in one fused operation, to the nearest integer, within 16 bits;
//   p_j = the bfloat16 whose bits are (w_j - kViewPowers[w_j / 8 mod 64]) / 4. It is 2^(s_j c - M -
//     67) with an error of at most 6e-3, on average 2e-3 (a fifth more than the format's own), and
//     0 when that is below 2^-126;
//   l = sum p_j in 32 lanes (lane = j mod 32) and their tree, in float32;
//   o = (sum p_j v_j) (1 / l), v rounded to bfloat16, pairs of keys in order, block onto block.
#pragma once

#include <cstdint>

namespace okibi::cpu {

constexpr int64_t kViewTileQueries = 32;
constexpr int64_t kViewBlockKeys = 96;
constexpr int64_t round_up_32(int64_t n) {
  return (n + 31) / 32 * 32;
}
// Queries, keys and values of a head, biases added, rounded, in tiles of 1 KiB:
//   queries: [32 dims][16 queries]   tile row p = the dims of query p
//   keys:    [32 dims][16 keys]      tile row p = dims 2p, 2p + 1 of each key
//   values:  [16 dims][32 keys]      tile row p = keys 2p, 2p + 1 of each dim
// Rows are padded to 32, dims to 32 with zeros. Each of the three has this many bytes. Of 32 keys,
// a tile has every other four: what packs two vectors of 16 into one of 32 halves 4 lanes of each
// after 4 of the other.
constexpr int64_t view_packed_bytes(int64_t n_rows, int64_t head_dim) {
  return round_up_32(n_rows) * round_up_32(head_dim) * 2;
}
// Where key r of 32 lies in its pair of tiles, in rows before they are turned.
constexpr int64_t view_key_row(int64_t r) {
  return r / 4 % 2 * 16 + r / 8 * 4 + r % 4;
}
// Of a block of keys, scores; of a tile of queries, sums and results.
constexpr int64_t view_scratch_bytes(int64_t head_dim) {
  return kViewTileQueries * 4 * (kViewBlockKeys + 32 + round_up_32(head_dim));
}

// 512 (1 + r - 2^r) at the middle r of each 64th of a power of two: what a straight line between
// powers of two has too much.
constexpr uint8_t kViewPowers[64] = {0,  3,  5,  8,  10, 12, 14, 16, 18, 20, 22, 24, 25, 27, 28, 30,
                                     31, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 42, 43, 43, 43, 44,
                                     44, 44, 44, 44, 44, 44, 43, 43, 42, 42, 41, 40, 39, 38, 37, 36,
                                     35, 33, 32, 30, 28, 27, 25, 23, 21, 18, 16, 14, 11, 8,  5,  2};

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

// Results as steps of kBf16 activations (cpu/bf16_tiles.h): rows of n_in values in all, of which
// the head begins step first_step. head_dim is a multiple of 32, and the view's first row that of a
// pair.
struct ViewRounded {
  uint8_t* tiles = nullptr;
  int64_t n_pairs = 0, n_in = 0, first_step = 0;
};

struct ViewAttendArgs {
  const uint8_t* queries = nullptr;  // of the whole view
  const uint8_t* keys = nullptr;
  const uint8_t* values = nullptr;
  int64_t n_rows = 0, head_dim = 0;
  // A multiple of kViewTileQueries, and how many queries from there on: such a multiple too, or
  // all.
  int64_t first_query = 0, n_queries = 0;
  float scale = 1.0f;    // positive
  float* out = nullptr;  // of the first query, rows out_stride floats apart
  int64_t out_stride = 0;
  ViewRounded rounded;         // instead, where it has tiles
  uint8_t* scratch = nullptr;  // view_scratch_bytes, 64-byte aligned
};

struct ViewAttendKernels {
  void (*pack)(const ViewPackArgs& args) = nullptr;
  void (*attend)(const ViewAttendArgs& args) = nullptr;
  const char* name = nullptr;
};

}  // namespace okibi::cpu
