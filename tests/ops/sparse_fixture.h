// A layer of sparse attention on a backend, sequences of random tokens for it, and the formulas of
// the spec in double.
#pragma once

#include <string>
#include <vector>

#include "ops/ops_fixture.h"

namespace okibi::ops_test {

struct SparseShape {
  int32_t n_heads = 4, n_kv_heads = 2, head_dim = 32;
  int32_t index_heads = 2;
  ops::IndexShape index{.dim = 16, .block_tokens = 4, .budget = 32};
};

// What the projections of one sequence gave, all positions.
struct SparseSequence {
  SparseShape shape;
  int64_t n = 0;
  std::vector<float> q, k, v, index_q, index_k;
  std::vector<ops::PageId> pages;
  ops::SlotId slot = 0;
};
SparseSequence make_sparse_sequence(const SparseShape& shape, int64_t n, uint32_t seed);

constexpr int32_t kSparsePageTokens = 48;  // no divisor of a partition
constexpr uint64_t kSparseStateOffset = 5;

// A backend with one layer without and one with an index.
struct SparseLayer {
  SparseShape shape;
  std::unique_ptr<ops::Backend> backend;
  ops::Rows q, k, v, index_q, index_k, out;
  ops::IndexKeys keys;
  std::vector<ops::PageId> free_pages;
  std::vector<ops::SlotId> free_slots;
};
struct SparseOptions {
  CpuLevel level = CpuLevel::kReference;
  ops::KvType type = ops::KvType::kF32;
  int n_threads = 1;
  ops::SparseSwitches switches;
  int64_t max_rows = 512;
  int32_t page_tokens = kSparsePageTokens;
  uint32_t max_pages = 400;
};
SparseLayer make_sparse_layer(const SparseOptions& options, const SparseShape& shape);
// Pages for all positions, in no order, and a zeroed slot.
void give_memory(SparseLayer& layer, SparseSequence& x);

// Results of a sequence's rows: attention, and the sets.
struct SparseResult {
  std::vector<float> out;
  std::vector<std::vector<uint32_t>> positions;
  bool operator==(const SparseResult&) const = default;
};
// Rows [begin, end) of a sequence in a step; results are appended.
struct SparsePart {
  SparseSequence* x;
  int64_t begin, end;
  SparseResult* result;
  bool change_slot = false;
};
void run_sparse_parts(SparseLayer& layer, const std::vector<SparsePart>& parts);
SparseResult run_sparse_chunks(SparseLayer& layer, SparseSequence& x, int64_t chunk,
                               bool change_slot = false);

// Scores of all complete blocks for the query at `position`, in double.
std::vector<double> reference_scores(const SparseLayer& layer, const SparseSequence& x,
                                     int64_t position);
// Attention of the query at `position` over the given positions, in double.
std::vector<double> reference_attend(const SparseSequence& x, int64_t position,
                                     const std::vector<uint32_t>& positions, ops::KvType type);

}  // namespace okibi::ops_test
