// Index kernels over the lanes of a level. Besides what any level's lanes.h has, L brings
//   kDirectKeys                keys that score_row takes at a time (accumulators: 4 heads each)
//   sums_of_16(v)              where kDirectKeys is 4: lane i is the sum of v[i], as sum adds
//   kTileVectors, kTileLanes   vectors of 16 keys, and lanes of the dot product, that score_tile
//                              has in accumulators for 4 heads
//   greater(a, b)              mask of lanes with a > b
//   transpose(rows, c, out, stride)   out[i * stride + r] = rows[r][c + i] for 16 rows and columns
//   keep(mask, scores, blocks, to_scores, to_blocks)        moves lanes of the mask together,
//   keep_from(mask, scores, first, to_scores, to_blocks)    their number; writes 16 lanes
//   prefetch(p), prefetch_far(p)            into the first cache, into the second only
#pragma once

#include "cpu/index_kernels.h"

namespace okibi::cpu {
namespace {

// keep and keep_from for levels without an instruction that moves lanes together: block_of(i) is
// the block of lane i. In place is fine: lanes only move to the front.
template <typename BlockOf>
inline int32_t keep_lanes(uint32_t mask, const float* scores, const BlockOf& block_of,
                          float* to_scores, uint32_t* to_blocks) {
  int32_t n = 0;
  for (; mask != 0; mask &= mask - 1, ++n) {
    const int i = __builtin_ctz(mask);
    to_scores[n] = scores[i];
    to_blocks[n] = block_of(i);
  }
  return n;
}

template <class L>
void index_mean(const float* const* rows, int32_t n, int64_t dim, float* out) {
  const auto count = L::splat(static_cast<float>(n));
  for (int64_t i = 0; i < dim; i += 16) {
    auto sum = L::load(rows[0] + i, dim - i);
    for (int32_t j = 1; j < n; ++j) sum = L::add(sum, L::load(rows[j] + i, dim - i));
    L::store(out + i, L::div(sum, count), dim - i);
  }
}

// What score_row asks for early. A core has 16 fill buffers before its first cache, and memory
// wants more lines than that on their way: keys go into the second cache kIndexAhead early (16 KiB
// of the real model), into the first one just before they are used. One line of each at a time,
// between multiply-adds: bursts fill the buffers, and then everything waits.
template <class L>
inline void ask_ahead(const float* const* key, int64_t c) {
  L::prefetch(key[L::kDirectKeys] + c);
  L::prefetch_far(key[kIndexAhead] + c);
}

// sums[i] += max(0, sum of acc[h * kKeys + i]) for kHeads heads in order.
template <class L, int kHeads>
inline void add_dots(typename L::V* acc, float* sums) {
  constexpr int kKeys = L::kDirectKeys;
  if constexpr (kHeads * kKeys == 16) {
    float dots[16];
    L::store(dots, L::max(L::sums_of_16(acc), L::zero()));
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kKeys; ++i) sums[i] += dots[h * kKeys + i];
    }
  } else {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const float dot = L::sum(acc[h * kKeys + i]);
        sums[i] += dot > 0.0f ? dot : 0.0f;
      }
    }
  }
}

// sums[i] += max(0, q_h . keys[i]) for kHeads heads in order.
template <class L, int kHeads>
inline void add_heads_direct(const float* q, int64_t dim, const float* const* keys, float* sums) {
  constexpr int kKeys = L::kDirectKeys;
  typename L::V acc[kHeads * kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) {
    const auto key = L::load(keys[i]);
    ask_ahead<L>(keys + i, 0);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[h * kKeys + i] = L::mul(L::load(q + h * dim), key);
  }
  for (int64_t c = 16; c < dim; c += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const auto key = L::load(keys[i] + c);
      ask_ahead<L>(keys + i, c);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        auto& sum = acc[h * kKeys + i];
        sum = L::fma(L::load(q + h * dim + c), key, sum);
      }
    }
  }
  add_dots<L, kHeads>(acc, sums);
}

template <class L>
void index_score_row(const IndexScoreArgs& a) {
  constexpr int kKeys = L::kDirectKeys;
  for (int32_t j = 0; j < a.n_keys; j += kKeys) {
    float sums[kKeys] = {};
    int32_t h = 0;
    for (; h + 4 <= a.n_heads; h += 4) {
      add_heads_direct<L, 4>(a.q + int64_t{h} * a.dim, a.dim, a.keys + j, sums);
    }
    for (; h < a.n_heads; ++h) {
      add_heads_direct<L, 1>(a.q + int64_t{h} * a.dim, a.dim, a.keys + j, sums);
    }
    for (int i = 0; i < kKeys; ++i) a.scores[j + i] = sums[i] * a.scale;
  }
}

// sums[v] += max(0, q_h . key) for kHeads heads in order; vector lane = key. `keys` is
// (dim, 16 kTileVectors). Some lanes of the dot product at a time, then their tree.
template <class L, int kHeads>
inline void add_heads_tile(const float* q, int64_t dim, const float* keys, typename L::V* sums) {
  constexpr int kVectors = L::kTileVectors, kLanes = L::kTileLanes, kWidth = 16 * kVectors;
  typename L::V parts[16 / kLanes][kHeads][kVectors];
  for (int g = 0; g < 16 / kLanes; ++g) {
    typename L::V acc[kLanes][kHeads][kVectors];
    const float* key = keys + g * kLanes * kWidth;
    const float* query = q + g * kLanes;
#pragma GCC unroll 4
    for (int l = 0; l < kLanes; ++l) {
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const auto x = L::splat(query[h * dim + l]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          acc[l][h][v] = L::mul(x, L::load(key + l * kWidth + 16 * v));
        }
      }
    }
    for (int64_t c = 16; c < dim; c += 16) {
      key += 16 * kWidth;
      query += 16;
#pragma GCC unroll 4
      for (int l = 0; l < kLanes; ++l) {
        typename L::V k[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) k[v] = L::load(key + l * kWidth + 16 * v);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const auto x = L::splat(query[h * dim + l]);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) acc[l][h][v] = L::fma(x, k[v], acc[l][h][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        for (int n = kLanes / 2; n >= 1; n /= 2) {
          for (int l = 0; l < n; ++l) acc[l][h][v] = L::add(acc[2 * l][h][v], acc[2 * l + 1][h][v]);
        }
        parts[g][h][v] = acc[0][h][v];
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      for (int n = 8 / kLanes; n >= 1; n /= 2) {
        for (int g = 0; g < n; ++g)
          parts[g][h][v] = L::add(parts[2 * g][h][v], parts[2 * g + 1][h][v]);
      }
      sums[v] = L::add(sums[v], L::max(parts[0][h][v], L::zero()));
    }
  }
}

template <class L>
void index_score_tile(const IndexScoreArgs& a) {
  constexpr int kVectors = L::kTileVectors, kWidth = 16 * kVectors;
  for (int32_t j = 0; j < a.n_keys; j += kWidth) {
    for (int32_t c = 0; c < a.dim; c += 16) {
      for (int v = 0; v < kVectors; ++v) {
        L::transpose(a.keys + j + 16 * v, c, a.scratch + c * kWidth + 16 * v, kWidth);
      }
    }
    for (int32_t r = 0; r < a.n_rows; ++r) {
      // The keys that are transposed next, some with every row.
      const int32_t ahead_end = kWidth * (r + 1) / a.n_rows;
      for (int32_t i = kWidth * r / a.n_rows; i < ahead_end; ++i) {
        for (int32_t c = 0; c < a.dim; c += 16) L::prefetch(a.keys[j + kWidth + i] + c);
      }
      const float* q = a.q + r * a.q_stride;
      typename L::V sums[kVectors];
      for (int v = 0; v < kVectors; ++v) sums[v] = L::zero();
      int32_t h = 0;
      for (; h + 4 <= a.n_heads; h += 4) {
        add_heads_tile<L, 4>(q + int64_t{h} * a.dim, a.dim, a.scratch, sums);
      }
      for (; h < a.n_heads; ++h) {
        add_heads_tile<L, 1>(q + int64_t{h} * a.dim, a.dim, a.scratch, sums);
      }
      float* scores = a.scores + int64_t{r} * kIndexChunk + j;
      for (int v = 0; v < kVectors; ++v) {
        L::store(scores + 16 * v, L::mul(sums[v], L::splat(a.scale)));
      }
    }
  }
}

inline uint32_t first_lanes(int32_t n) {
  return n >= 16 ? 0xffffu : (1u << n) - 1;
}

// Scores of the candidates that are larger than t.
template <class L>
inline int32_t count_greater(const IndexCandidates& c, float t) {
  const auto limit = L::splat(t);
  int32_t n = 0;
  for (int32_t i = 0; i < c.n; i += 16) {
    n += __builtin_popcount(L::greater(L::load(c.scores + i), limit) & first_lanes(c.n - i));
  }
  return n;
}

// Bisects the bits of the scores, whose order is that of the values, for a limit that k of them
// exceed, or for the k-th score itself where ties leave no such limit.
template <class L>
void index_shrink(IndexCandidates& c) {
  if (c.n <= c.k) return;
  int32_t low = 0, high = 0x7f800000;  // zero, infinity
  if (c.threshold > 0.0f) __builtin_memcpy(&low, &c.threshold, sizeof low);
  float limit = 0.0f;
  int32_t n_greater = 0;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    __builtin_memcpy(&limit, &middle, sizeof limit);
    n_greater = count_greater<L>(c, limit);
    if (n_greater == c.k) break;
    if (n_greater < c.k) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (n_greater != c.k) {
    __builtin_memcpy(&limit, &low, sizeof limit);
    n_greater = count_greater<L>(c, limit);
  }
  int32_t n_equal = c.k - n_greater;  // still wanted
  int32_t to = 0;
  for (int32_t i = 0; i < c.n; i += 16) {
    const auto scores = L::load(c.scores + i);
    const uint32_t valid = first_lanes(c.n - i);
    uint32_t mask = L::greater(scores, L::splat(limit)) & valid;
    if (n_equal > 0) {
      uint32_t equal = valid & ~mask & ~L::greater(L::splat(limit), scores);
      for (; equal != 0 && n_equal > 0; equal &= equal - 1, --n_equal) mask |= equal & -equal;
    }
    to += L::keep(mask, scores, c.blocks + i, c.scores + to, c.blocks + to);
  }
  c.n = c.k;
  c.threshold = limit;
}

template <class L>
void index_offer(IndexCandidates& c, const float* scores, int32_t n, uint32_t first) {
  for (int32_t i = 0; i < n; i += 16) {
    const auto s = L::load(scores + i);
    const uint32_t mask = L::greater(s, L::splat(c.threshold)) & first_lanes(n - i);
    if (mask == 0) continue;
    c.n += L::keep_from(mask, s, first + static_cast<uint32_t>(i), c.scores + c.n, c.blocks + c.n);
    if (c.n + 16 > c.capacity) index_shrink<L>(c);
  }
}

template <class L>
IndexKernels make_shared_index_kernels(const char* name) {
  return {.name = name,
          .mean = index_mean<L>,
          .score_row = index_score_row<L>,
          .score_tile = index_score_tile<L>,
          .offer = index_offer<L>,
          .shrink = index_shrink<L>};
}

}  // namespace
}  // namespace okibi::cpu
