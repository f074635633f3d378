// The kernels of the index of sparse attention: pooling of index keys, scores of blocks, and the
// best blocks of a stream of scores. Plain data, so ISA files may include it.
//
// Numbers. A block's mean adds its keys in order and divides. The score of a query and a block is
//   scale * (max(0, d_0) + max(0, d_1) + ...), d_h = q_h . p in 16 lanes (lane = index mod 16),
// the lanes added as a tree of neighbours; a NaN counts as zero. So scores are never negative, and
// the order of their bits is the order of their values. Neither tiles nor chunks change a bit.
#pragma once

#include <cstdint>

#include "cpu/kernel_table.h"

namespace okibi::cpu {

constexpr int32_t kIndexChunk = 64;     // blocks that are scored at a time
constexpr int32_t kIndexTileRows = 64;  // query rows that share transposed keys
constexpr int32_t kIndexAhead = 32;     // keys past a chunk that are asked for early
constexpr int32_t kMaxIndexDim = 512;
constexpr int32_t kMaxBlockTokens = 64;
// Keys that a tile transposes at a time, at most.
constexpr int32_t kIndexTransposed = 32;

struct IndexScoreArgs {
  const float* q = nullptr;  // (n_rows, n_heads, dim), rows q_stride floats apart
  int64_t q_stride = 0;
  int32_t n_rows = 0, n_heads = 0;
  int32_t dim = 0;  // a multiple of 16
  float scale = 1.0f;
  // kIndexChunk + kIndexAhead readable rows of dim floats; the first n_keys count.
  const float* const* keys = nullptr;
  int32_t n_keys = 0;
  float* scores = nullptr;   // (n_rows, kIndexChunk)
  float* scratch = nullptr;  // (kIndexTransposed, dim), 64-byte aligned
};

// The best `k` of the blocks that were offered so far are among those held, in the order in which
// they were offered. A later block must score more than `threshold` to come into question.
struct IndexCandidates {
  float* scores = nullptr;  // (capacity), capacity >= k + 32
  uint32_t* blocks = nullptr;
  int32_t n = 0, k = 0, capacity = 0;
  float threshold = -1.0f;
};

// Attention of one query's heads over one partition of its list; bits are those of attend.
struct AttendListArgs {
  AttendArgs partition;  // n_queries is 1
  // The partition that follows on this thread: its keys are asked for while values are summed.
  const KvRun* next = nullptr;
  int32_t n_next = 0;
};
// Keys of a list are scored for this many heads at a time.
constexpr int32_t kListHeads = 12;
// Scores as they come, scores of each head, and queries.
constexpr int64_t attend_list_scratch_floats(int64_t k_dim) {
  return kListHeads * (2 * kAttendPartition + round_up_16(k_dim)) + 256;
}

struct IndexKernels {
  const char* name = nullptr;  // "avx512.index"
  // out = mean of n rows of dim floats.
  void (*mean)(const float* const* rows, int32_t n, int64_t dim, float* out) = nullptr;
  // Scores of every row with every key. score_row reads keys once, for one row; score_tile is for
  // many rows. Equal bits.
  void (*score_row)(const IndexScoreArgs& args) = nullptr;
  void (*score_tile)(const IndexScoreArgs& args) = nullptr;
  // Offers blocks first, first + 1, ... with their scores (n <= kIndexChunk, readable to the next
  // multiple of 16), all of them later than any before.
  void (*offer)(IndexCandidates& c, const float* scores, int32_t n, uint32_t first) = nullptr;
  // Drops all but the best k, ties to the lower block.
  void (*shrink)(IndexCandidates& c) = nullptr;
  // By K/V type, for groups of a multiple of kListHeads heads and heads of a multiple of 32
  // values; null: the level has nothing better than attend.
  void (*attend_list[kNKvTypes])(const AttendListArgs& args) = {};
};

namespace reference {
IndexKernels index_kernels();
}
namespace avx2 {
IndexKernels index_kernels();
}
namespace avx512 {
IndexKernels index_kernels();
}

}  // namespace okibi::cpu
