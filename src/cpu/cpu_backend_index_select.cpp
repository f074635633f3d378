// The selection of blocks: tiles of query rows against ranges of blocks, over threads. Each row
// keeps candidates while scores stream by; where a tile's blocks are cut into ranges, the best of
// each range are put together and selected from once more, which gives the same set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {
namespace {

// Fewer blocks than this in a range cost more in candidates than a thread saves.
constexpr int64_t kMinRangeBlocks = 2048;
constexpr int64_t kMaxRanges = 64;

}  // namespace

struct CpuBackend::SelectCall {
  const RowsBuffer* q;
  Selection* selection;
  int32_t kv_layer;
  int32_t n_heads;
  float scale;
};

// Candidates of every row of a tile, the scores of a chunk, transposed keys.
int64_t CpuBackend::select_scratch_floats(int64_t k, int64_t dim) {
  const int64_t for_tiles = 2 * kIndexTileRows * candidate_capacity(k) +
                            kIndexTileRows * kIndexChunk + kIndexTransposed * dim;
  return std::max(for_tiles, kMaxBlockTokens * dim);  // fill_random makes a block's keys here
}

// Room for a few times as many candidates as are wanted, so that shrinking is rare.
int64_t CpuBackend::candidate_capacity(int64_t k) {
  return round_up_16(std::max<int64_t>(4 * k, kMaxRanges + k) + 32);
}

// A tile is cut into ranges only while there are fewer than four tiles a thread.
int64_t CpuBackend::select_record_bytes(int64_t k, int n_threads) {
  return 9 * int64_t{n_threads} * kIndexTileRows * (2 * k + 16) * 4;
}

uint32_t CpuBackend::n_dense_rows(const ops::IndexShape& shape, const ops::SequenceSpan& s) const {
  const int64_t most = int64_t{shape.budget} + shape.block_tokens - 1;
  return static_cast<uint32_t>(std::clamp<int64_t>(most - s.n_past, 0, s.n_rows));
}

void CpuBackend::plan_select(const SelectCall& call) {
  const ops::IndexShape& shape = index_shape(call.kv_layer);
  const int64_t n_threads = pool_.n_threads();
  select_units_.clear();
  for (const ops::SequenceSpan& s : plan_->sequences) {
    for (uint32_t r = n_dense_rows(shape, s); r < s.n_rows; r += kIndexTileRows) {
      const auto n_rows = static_cast<int32_t>(std::min<uint32_t>(kIndexTileRows, s.n_rows - r));
      const int64_t n_blocks = (int64_t{s.n_past} + r + n_rows) / shape.block_tokens;
      select_units_.push_back({.sequence = &s,
                               .first = r,
                               .n_rows = n_rows,
                               .block_begin = 0,
                               .block_end = n_blocks,
                               .n_ranges = 1});
    }
  }
  const auto n_tiles = static_cast<int64_t>(select_units_.size());
  if (n_threads == 1 || n_tiles == 0 || n_tiles >= 4 * n_threads) return;
  const int64_t wanted = std::min(ceil_div(4 * n_threads, n_tiles), kMaxRanges);
  int64_t n_records = 0;
  for (int64_t i = 0; i < n_tiles; ++i) {
    SelectUnit unit = select_units_[static_cast<size_t>(i)];
    const int64_t n_blocks = unit.block_end;
    const int64_t n_ranges = std::clamp<int64_t>(n_blocks / kMinRangeBlocks, 1, wanted);
    const int64_t length = static_cast<int64_t>(
        align_up(static_cast<uint64_t>(ceil_div(n_blocks, n_ranges)), kIndexChunk));
    unit.n_ranges = static_cast<int32_t>(ceil_div(n_blocks, length));
    for (unit.range = 0; unit.range < unit.n_ranges; ++unit.range) {
      unit.block_begin = unit.range * length;
      unit.block_end = std::min(n_blocks, unit.block_begin + length);
      unit.first_record = n_records;
      n_records += unit.n_ranges > 1 ? unit.n_rows : 0;
      if (unit.range == 0) {
        select_units_[static_cast<size_t>(i)] = unit;
      } else {
        select_units_.push_back(unit);
      }
    }
  }
}

// Scores of all rows of the unit with blocks [first, first + n) into its thread's scratch.
void CpuBackend::score_blocks(const SelectCall& call, const SelectUnit& unit, int64_t first,
                              int32_t n, float* scores, float* scratch) {
  const ops::IndexShape& shape = index_shape(call.kv_layer);
  const ops::SequenceSpan& s = *unit.sequence;
  const int64_t per_page = kv_config_.page_tokens / shape.block_tokens;
  const int64_t last = unit.block_end - 1;
  const float* keys[kIndexChunk + kIndexAhead];
  for (int64_t j = 0; j < kIndexChunk + kIndexAhead;) {
    const int64_t block = std::min(first + j, last);
    const float* row = pooled_key(call.kv_layer, s.pages, static_cast<uint64_t>(block));
    const int64_t left = std::min(
        {per_page - block % per_page, last - block + 1, int64_t{kIndexChunk + kIndexAhead} - j});
    for (int64_t i = 0; i < left; ++i, ++j) keys[j] = row + i * shape.dim;
  }
  IndexScoreArgs a;
  a.q = call.q->row(s.first_row + unit.first);
  a.q_stride = call.q->stride;
  a.n_rows = unit.n_rows;
  a.n_heads = call.n_heads;
  a.dim = shape.dim;
  a.scale = call.scale;
  a.keys = keys;
  a.n_keys = n;
  a.scores = scores;
  a.scratch = scratch;
  (unit.n_rows == 1 ? index_kernels_.score_row : index_kernels_.score_tile)(a);
}

void CpuBackend::select_unit(const SelectCall& call, const SelectUnit& unit, int thread) {
  const ops::IndexShape& shape = index_shape(call.kv_layer);
  const ops::SequenceSpan& s = *unit.sequence;
  const int32_t k = call.selection->n_blocks;
  const int64_t capacity = candidate_capacity(k);
  float* scratch = select_scratch(thread);
  float* keys = scratch;
  float* scores = keys + int64_t{kIndexTransposed} * shape.dim;
  float* candidates = scores + kIndexTileRows * kIndexChunk;
  IndexCandidates c[kIndexTileRows];
  for (int32_t r = 0; r < unit.n_rows; ++r) {
    c[r].scores = candidates + 2 * r * capacity;
    c[r].blocks = reinterpret_cast<uint32_t*>(c[r].scores + capacity);
    c[r].k = k;
    c[r].capacity = static_cast<int32_t>(capacity);
  }
  for (int64_t b = unit.block_begin; b < unit.block_end; b += kIndexChunk) {
    const auto n = static_cast<int32_t>(std::min<int64_t>(kIndexChunk, unit.block_end - b));
    score_blocks(call, unit, b, n, scores, keys);
    for (int32_t r = 0; r < unit.n_rows; ++r) {
      const int64_t seen = (int64_t{s.n_past} + unit.first + r + 1) / shape.block_tokens - b;
      if (seen <= 0) continue;
      index_kernels_.offer(c[r], scores + r * kIndexChunk,
                           static_cast<int32_t>(std::min<int64_t>(n, seen)),
                           static_cast<uint32_t>(b));
    }
  }
  for (int32_t r = 0; r < unit.n_rows; ++r) {
    index_kernels_.shrink(c[r]);
    const auto n_bytes = static_cast<size_t>(c[r].n) * sizeof(uint32_t);
    if (unit.n_ranges == 1) {
      std::memcpy(chosen(*call.selection, s.first_row + unit.first + static_cast<uint32_t>(r)),
                  c[r].blocks, n_bytes);
      continue;
    }
    uint8_t* record = select_record(k, unit.first_record + r);
    std::memcpy(record, &c[r].n, sizeof c[r].n);
    std::memcpy(record + 64, c[r].scores, n_bytes);
    std::memcpy(record + 64 + 4 * k, c[r].blocks, n_bytes);
  }
}

// One row's best of the ranges of its tile, whose first unit is given.
void CpuBackend::merge_ranges(const SelectCall& call, const SelectUnit& first, int32_t row,
                              int thread) {
  const int32_t k = call.selection->n_blocks;
  IndexCandidates c;
  // All candidates of a tile fit here, so those of a row's ranges do.
  c.capacity = static_cast<int32_t>(round_up_16(int64_t{first.n_ranges} * k + 32));
  c.scores = select_scratch(thread);
  c.blocks = reinterpret_cast<uint32_t*>(c.scores + c.capacity);
  c.k = k;
  for (int32_t i = 0; i < first.n_ranges; ++i) {
    const uint8_t* record = select_record(k, first.first_record + i * first.n_rows + row);
    int32_t n;
    std::memcpy(&n, record, sizeof n);
    std::memcpy(c.scores + c.n, record + 64, static_cast<size_t>(n) * 4);
    std::memcpy(c.blocks + c.n, record + 64 + 4 * k, static_cast<size_t>(n) * 4);
    c.n += n;
  }
  index_kernels_.shrink(c);
  const uint32_t r = first.sequence->first_row + first.first + static_cast<uint32_t>(row);
  std::memcpy(chosen(*call.selection, r), c.blocks, static_cast<size_t>(c.n) * 4);
}

// The best cells of one row whose blocks are scored: every block's score is given to its cells,
// the best cells are selected, ties to the lower one, and turned back into blocks. Cells of a block
// are equal and neighbours and the budget is whole blocks, so the set is that of the best blocks.
void CpuBackend::best_cells(const SelectCall& call, const SelectUnit& tile, int32_t row,
                            int thread) {
  const ops::IndexShape& shape = index_shape(call.kv_layer);
  const ops::SequenceSpan& s = *tile.sequence;
  const int64_t n_blocks = (int64_t{s.n_past} + tile.first + row + 1) / shape.block_tokens;
  const auto* chunks = reinterpret_cast<const float*>(block_scores_.data());
  auto* cells = reinterpret_cast<uint64_t*>(cells_.data() + cells_stride_ * thread);
  int64_t n = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const int64_t chunk = b / kIndexChunk;
    uint32_t bits;  // of a number that is not negative: ordered as the number
    std::memcpy(&bits, chunks + (chunk * kIndexTileRows + row) * kIndexChunk + b % kIndexChunk, 4);
    for (int32_t i = 0; i < shape.block_tokens; ++i, ++n) {
      cells[n] = uint64_t{bits} << 32 | (0xffffffffu - static_cast<uint32_t>(n));
    }
  }
  std::nth_element(cells, cells + shape.budget - 1, cells + n, std::greater<>());
  uint32_t* out = chosen(*call.selection, s.first_row + tile.first + static_cast<uint32_t>(row));
  int32_t n_out = 0;
  for (int32_t i = 0; i < shape.budget; ++i) {
    const uint32_t cell = 0xffffffffu - static_cast<uint32_t>(cells[i]);
    if (cell % static_cast<uint32_t>(shape.block_tokens) == 0) {
      out[n_out++] = cell / static_cast<uint32_t>(shape.block_tokens);
    }
  }
  CHECK(n_out == call.selection->n_blocks, "%d blocks of %d", n_out, call.selection->n_blocks);
  std::sort(out, out + n_out);
}

// The selection in the domain of cells, tile after tile.
void CpuBackend::select_cells(const SelectCall& call) {
  auto* scores = reinterpret_cast<float*>(block_scores_.data());
  for (const SelectUnit& tile : select_units_) {
    pool_.parallel_for(
        ceil_div(tile.block_end, kIndexChunk), 16, [&](int64_t begin, int64_t end, int thread) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t b = i * kIndexChunk;
            const auto n = std::min<int64_t>(kIndexChunk, tile.block_end - b);
            score_blocks(call, tile, b, static_cast<int32_t>(n),
                         scores + i * kIndexTileRows * kIndexChunk, select_scratch(thread));
          }
        });
    pool_.parallel_for(tile.n_rows, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) {
        best_cells(call, tile, static_cast<int32_t>(r), thread);
      }
    });
  }
}

void CpuBackend::select_blocks(int32_t kv_layer, ops::Rows q) {
  const ZoneTimer timer(*this, Zone::kIndex, index_kernels_.name);
  check_all_rows();
  const ops::IndexShape& shape = index_shape(kv_layer);
  const RowsBuffer& queries = rows(q);
  CHECK(queries.cols > 0 && queries.cols % shape.dim == 0 && queries.n_valid == plan_->n_rows,
        "index queries of %lld, keys of %d", static_cast<long long>(queries.cols), shape.dim);
  Selection& selection = selections_[static_cast<size_t>(kv_layer)];
  selection.step = n_steps_;
  selection.n_positions.resize(plan_->n_rows);
  for (const ops::SequenceSpan& s : plan_->sequences) {
    CHECK(ceil_div(int64_t{s.n_past} + s.n_rows, kv_config_.page_tokens) <=
              static_cast<int64_t>(s.pages.size()),
          "%u and %u positions, %zu pages", s.n_past, s.n_rows, s.pages.size());
    for (uint32_t r = 0; r < s.n_rows; ++r) {
      selection.n_positions[s.first_row + r] = s.n_past + r + 1;
    }
  }
  const size_t n_chosen = size_t{plan_->n_rows} * static_cast<size_t>(selection.n_blocks);
  if (selection.blocks.size() < n_chosen) selection.blocks.resize(n_chosen);
  SelectCall call;
  call.q = &queries;
  call.selection = &selection;
  call.kv_layer = kv_layer;
  call.n_heads = static_cast<int32_t>(queries.cols / shape.dim);
  call.scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
  if (!kv_config_.sparse.keep_pooled) pool_again(kv_layer);
  plan_select(call);
  if (!kv_config_.sparse.select_blocks) return select_cells(call);
  const auto n_units = static_cast<int64_t>(select_units_.size());
  pool_.parallel_for(n_units, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      select_unit(call, select_units_[static_cast<size_t>(i)], thread);
    }
  });
  for (const SelectUnit& u : select_units_) {
    if (u.n_ranges == 1 || u.range != 0) continue;
    pool_.parallel_for(u.n_rows, 4, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) {
        merge_ranges(call, u, static_cast<int32_t>(r), thread);
      }
    });
  }
}

std::vector<uint32_t> CpuBackend::selected_positions(int32_t kv_layer, uint32_t row) const {
  const ops::IndexShape& shape = index_shape(kv_layer);
  const Selection& selection = selections_[static_cast<size_t>(kv_layer)];
  CHECK(selection.step == n_steps_ && row < selection.n_positions.size(),
        "K/V layer %d has no selection of row %u in this step", kv_layer, row);
  const auto block_tokens = static_cast<uint32_t>(shape.block_tokens);
  const uint32_t n = selection.n_positions[row];
  std::vector<uint32_t> positions;
  uint32_t open = 0;
  if (n / block_tokens > static_cast<uint32_t>(selection.n_blocks)) {
    const size_t first = size_t{row} * static_cast<size_t>(selection.n_blocks);
    for (size_t i = first; i < first + static_cast<size_t>(selection.n_blocks); ++i) {
      for (uint32_t j = 0; j < block_tokens; ++j) {
        positions.push_back(selection.blocks[i] * block_tokens + j);
      }
    }
    open = n / block_tokens * block_tokens;
  }
  for (uint32_t p = open; p < n; ++p) positions.push_back(p);
  return positions;
}

}  // namespace okibi::cpu
