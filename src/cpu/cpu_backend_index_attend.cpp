// Attention over selected blocks: every query walks its own list of positions in partitions, by the
// kernels and in the order of attend, so that a list of everything gives attend's bits.
#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

struct CpuBackend::ListPart {
  int64_t row;
  int32_t kv_head, partition;
};

struct CpuBackend::ListCall {
  const RowsBuffer* q;
  RowsBuffer* out;
  const Selection* selection;
  int32_t kv_layer;
  int32_t block_tokens;
  int32_t n_kv_heads, group;
  int32_t k_dim, v_dim;
  float scale;
  int64_t record_floats;
};

namespace {

// Entries of the list of a row that has n positions.
int64_t list_length(uint32_t n, int64_t n_blocks, int64_t block_tokens) {
  return n_blocks * block_tokens + n % block_tokens;
}

}  // namespace

// The runs of keys and values in one partition of a query's list; their number.
int32_t CpuBackend::list_runs(const ListCall& call, const ListPart& part, KvRun* runs) {
  const ops::SequenceSpan& s = plan_->sequences[plan_->row_sequence[static_cast<size_t>(part.row)]];
  const ops::KvLayerLayout& layout = kv_layout_.layers[static_cast<size_t>(call.kv_layer)];
  const int64_t page_tokens = kv_config_.page_tokens, block_tokens = call.block_tokens;
  const int64_t n_blocks = call.selection->n_blocks;
  const uint32_t n = call.selection->n_positions[static_cast<size_t>(part.row)];
  const uint32_t* blocks = call.selection->blocks.data() + part.row * n_blocks;
  const int64_t open = n / block_tokens * block_tokens;
  const int64_t begin = int64_t{part.partition} * kAttendPartition;
  const int64_t end = std::min(begin + kAttendPartition, list_length(n, n_blocks, block_tokens));
  int32_t n_runs = 0;
  int64_t next = -1;  // the position behind the last run
  for (int64_t e = begin; e < end;) {
    const int64_t i = e / block_tokens, in_block = e % block_tokens;
    const int64_t position = (i < n_blocks ? blocks[i] * block_tokens : open) + in_block;
    const int64_t count = std::min(block_tokens - in_block, end - e);
    const int64_t in_page = position % page_tokens;
    if (position == next && in_page != 0) {
      runs[n_runs - 1].n += static_cast<int32_t>(count);
    } else {
      const uint8_t* base = page(s.pages[static_cast<size_t>(position / page_tokens)]);
      const auto r = static_cast<uint64_t>(part.kv_head * page_tokens + in_page);
      runs[n_runs++] = {base + layout.k_offset + r * layout.k_row_bytes,
                        base + layout.v_offset + r * layout.v_row_bytes,
                        static_cast<int32_t>(count)};
    }
    next = position + count;
    e += count;
  }
  return n_runs;
}

// The records of one part; `next` is what follows on this thread and is asked for early.
void CpuBackend::attend_list_part(const ListCall& call, const ListPart& part,
                                  std::span<const KvRun> runs, std::span<const KvRun> next,
                                  float* records, int thread) {
  int32_t n_keys = 0;
  for (const KvRun& run : runs) n_keys += run.n;
  AttendArgs a;
  a.q = call.q->row(part.row) + int64_t{part.kv_head} * call.group * call.k_dim;
  a.q_query_stride = call.q->stride;
  a.q_head_stride = call.k_dim;
  a.n_queries = 1;
  a.n_heads = call.group;
  a.k_dim = call.k_dim;
  a.v_dim = call.v_dim;
  a.scale = call.scale;
  a.runs = runs.data();
  a.n_runs = static_cast<int32_t>(runs.size());
  a.n_keys = &n_keys;
  a.records = records;
  a.record_head_stride = call.record_floats;
  a.record_query_stride = call.record_floats * call.group;
  a.scratch = attend_scratch(thread);
  attend_run(a, next);
}

// One call of attend, by the kernel for one query's list where there is one: equal bits.
void CpuBackend::attend_run(const AttendArgs& a, std::span<const KvRun> next) const {
  const auto type = static_cast<size_t>(kv_config_.type);
  if (a.n_queries == 1 && index_kernels_.attend_list[type] != nullptr &&
      a.n_heads % kListHeads == 0 && a.k_dim % 32 == 0 && a.v_dim % 32 == 0) {
    // Such a query sees all of its runs.
    index_kernels_.attend_list[type]({a, next.data(), static_cast<int32_t>(next.size())});
  } else {
    kernels_.attend[type](a);
  }
}

// fn(i, runs of part i, runs of the part after it) for parts [begin, end).
template <typename PartOf, typename Fn>
void CpuBackend::walk_list_parts(const ListCall& call, int64_t begin, int64_t end,
                                 const PartOf& part_of, const Fn& fn) {
  KvRun runs[2][kAttendPartition];
  int32_t n_runs[2] = {list_runs(call, part_of(begin), runs[0]), 0};
  for (int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<size_t>(i - begin) % 2;
    n_runs[1 - at] = i + 1 < end ? list_runs(call, part_of(i + 1), runs[1 - at]) : 0;
    fn(i, std::span<const KvRun>(runs[at], static_cast<size_t>(n_runs[at])),
       std::span<const KvRun>(runs[1 - at], static_cast<size_t>(n_runs[1 - at])));
  }
}

// A tile of neighbouring queries and one K/V head: a partition of each before the next of any.
// Queries of a text share most of their blocks, so those are read from memory once a tile.
void CpuBackend::attend_list_tile(const ListCall& call, std::span<const uint32_t> tile,
                                  int32_t kv_head, int thread) {
  const int64_t query_floats = call.record_floats * call.group;
  const auto n_rows = static_cast<int64_t>(tile.size());
  float* totals = list_records(thread);
  float* records = totals + n_rows * query_floats;
  int32_t n_partitions = 0;
  for (const uint32_t row : tile)
    n_partitions = std::max(n_partitions, n_list_partitions(call, row));
  const auto part_of = [&](int64_t i) {
    return ListPart{tile[static_cast<size_t>(i % n_rows)], kv_head,
                    static_cast<int32_t>(i / n_rows)};
  };
  walk_list_parts(call, 0, n_rows * n_partitions, part_of,
                  [&](int64_t i, std::span<const KvRun> runs, std::span<const KvRun> next) {
                    if (runs.empty()) return;  // this query's list is shorter
                    float* total = totals + i % n_rows * query_floats;
                    const bool is_first = i < n_rows;
                    attend_list_part(call, part_of(i), runs, next, is_first ? total : records,
                                     thread);
                    if (is_first) return;
                    for (int64_t f = 0; f < query_floats; f += call.record_floats) {
                      kernels_.attend_merge(total + f, records + f, call.v_dim);
                    }
                  });
  for (int64_t r = 0; r < n_rows; ++r) {
    finish_list(call, tile[static_cast<size_t>(r)], kv_head, totals + r * query_floats);
  }
}

int32_t CpuBackend::n_list_partitions(const ListCall& call, int64_t row) const {
  const uint32_t n = call.selection->n_positions[static_cast<size_t>(row)];
  return static_cast<int32_t>(
      ceil_div(list_length(n, call.selection->n_blocks, call.block_tokens), kAttendPartition));
}

void CpuBackend::finish_list(const ListCall& call, int64_t row, int32_t kv_head,
                             const float* totals) {
  float* out = call.out->row(row) + int64_t{kv_head} * call.group * call.v_dim;
  for (int32_t h = 0; h < call.group; ++h) {
    kernels_.attend_finish(totals + h * call.record_floats, call.v_dim,
                           out + int64_t{h} * call.v_dim);
  }
}

// Few queries: their partitions over threads, then each query's merge.
void CpuBackend::attend_lists_split(const ListCall& call, std::span<const uint32_t> rows_of_lists) {
  auto* records = reinterpret_cast<float*>(attend_records_.data());
  const int64_t query_floats = call.record_floats * call.group;
  const int64_t per_list = ceil_div(list_length(static_cast<uint32_t>(call.block_tokens - 1),
                                                call.selection->n_blocks, call.block_tokens),
                                    kAttendPartition);
  const auto n_lists = static_cast<int64_t>(rows_of_lists.size()) * call.n_kv_heads;
  const auto part_of = [&](int64_t i) {
    const int64_t list = i / per_list;
    return ListPart{rows_of_lists[static_cast<size_t>(list / call.n_kv_heads)],
                    static_cast<int32_t>(list % call.n_kv_heads),
                    static_cast<int32_t>(i % per_list)};
  };
  const int64_t n_parts = n_lists * per_list;
  const int64_t grain = std::max<int64_t>(1, n_parts / (4 * pool_.n_threads()));
  pool_.parallel_for(n_parts, grain, [&](int64_t begin, int64_t end, int thread) {
    walk_list_parts(call, begin, end, part_of,
                    [&](int64_t i, std::span<const KvRun> runs, std::span<const KvRun> next) {
                      if (runs.empty()) return;
                      attend_list_part(call, part_of(i), runs, next, records + i * query_floats,
                                       thread);
                    });
  });
  pool_.parallel_for(n_lists, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t list = begin; list < end; ++list) {
      const int64_t row = rows_of_lists[static_cast<size_t>(list / call.n_kv_heads)];
      float* totals = records + list * per_list * query_floats;
      for (int32_t p = 1; p < n_list_partitions(call, row); ++p) {
        for (int64_t i = 0; i < query_floats; i += call.record_floats) {
          kernels_.attend_merge(totals + i, totals + p * query_floats + i, call.v_dim);
        }
      }
      finish_list(call, row, static_cast<int32_t>(list % call.n_kv_heads), totals);
    }
  });
}

void CpuBackend::attend_selected(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale,
                                 ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kAttend, "selected");
  const ops::IndexShape& index = index_shape(kv_layer);
  const Selection& selection = selections_[static_cast<size_t>(kv_layer)];
  CHECK(selection.step == n_steps_, "K/V layer %d has no selection in this step", kv_layer);
  // Rows that select everything; or all of them, as an engine that masks reads every key and value.
  // What the selected ones give is then computed once more, as it is summed in another order.
  const int64_t most = int64_t{index.budget} + index.block_tokens - 1;
  attend_dense(kv_layer, q, n_heads, scale, out,
               kv_config_.sparse.attend_selected ? most : INT64_MAX);
  const ops::KvLayerShape& shape = kv_config_.layers[static_cast<size_t>(kv_layer)];
  ListCall call{};
  call.q = &rows(q);
  call.out = &rows(out);
  call.selection = &selection;
  call.kv_layer = kv_layer;
  call.block_tokens = index.block_tokens;
  call.n_kv_heads = shape.n_kv_heads;
  call.group = n_heads / shape.n_kv_heads;
  call.k_dim = shape.k_dim;
  call.v_dim = shape.v_dim;
  call.scale = scale;
  call.record_floats = attend_record_floats(shape.v_dim);
  list_rows_.clear();
  for (const ops::SequenceSpan& s : plan_->sequences) {
    for (uint32_t r = n_dense_rows(index, s); r < s.n_rows; ++r) {
      list_rows_.push_back(s.first_row + r);
    }
  }
  const auto n_lists = static_cast<int64_t>(list_rows_.size()) * call.n_kv_heads;
  const int64_t n_partitions = ceil_div(index.budget + index.block_tokens, kAttendPartition);
  const auto record_bytes = static_cast<uint64_t>(n_lists * n_partitions * call.record_floats *
                                                  call.group * int64_t{sizeof(float)});
  if (pool_.n_threads() > 1 && n_lists < 4 * pool_.n_threads() &&
      record_bytes <= attend_records_.size()) {
    return attend_lists_split(call, list_rows_);
  }
  // Rows of a tile are neighbours in list_rows_, if not always in one sequence.
  int64_t tile = kListTileRows;
  while (tile > 1 && n_lists / tile < 4 * pool_.n_threads()) tile /= 2;
  const auto n_rows = static_cast<int64_t>(list_rows_.size());
  const int64_t n_tiles = ceil_div(n_rows, tile);
  pool_.parallel_for(n_tiles * call.n_kv_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / call.n_kv_heads * tile;
      const auto n = static_cast<size_t>(std::min(tile, n_rows - first));
      attend_list_tile(call, std::span(list_rows_).subspan(static_cast<size_t>(first), n),
                       static_cast<int32_t>(i % call.n_kv_heads), thread);
    }
  });
}

}  // namespace okibi::cpu
