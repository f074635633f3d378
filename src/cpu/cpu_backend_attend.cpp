// Paged keys and values, and how the work of attention is cut: into tiles of query tokens that one
// K/V head serves together, or, when there are too few tiles for the threads (decoding one long
// sequence), into partitions of their lists whose records are merged in order afterwards. Either
// way a query's own arithmetic is the same.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {
namespace {

// Query rows (tokens x heads of a group) of a tile: enough that converting a partition's keys and
// values is a few per cent of the work, few enough that scores stay in the second-level cache.
constexpr int64_t kTileRows = 64;
constexpr int64_t kMinTileRows = 16;
// Below this many multiply-adds (some microseconds) a hand-over to other threads costs more than it
// saves.
constexpr int64_t kMinParallelWork = 1 << 17;
// Records kept when lists are split over threads: virtual, physical memory follows use.
constexpr uint64_t kMaxRecordBytes = 64ull << 20;

}  // namespace

struct CpuBackend::AttendCall {
  const RowsBuffer* q;
  RowsBuffer* out;
  int32_t kv_layer;
  int32_t n_heads, group;  // query heads, and those that share a K/V head
  int32_t k_dim, v_dim;
  float scale;
  int64_t record_floats;
  int64_t max_positions;                       // rows that have more take no part
  int64_t n_jobs = 0, partitions_per_job = 0;  // when split
};

Status CpuBackend::set_kv(const ops::KvConfig& config) {
  CHECK(!has_kv_, "set_kv was called twice");
  CHECK(config.page_tokens > 0, "pages of %d tokens", config.page_tokens);
  int64_t scratch = 0, records = 0;  // floats per thread
  for (const ops::KvLayerShape& s : config.layers) {
    CHECK(s.n_kv_heads > 0 && s.k_dim > 0 && s.v_dim > 0, "K/V layer of %d heads", s.n_kv_heads);
    if (config.type == ops::KvType::kQ8_0 && (s.k_dim % 32 != 0 || s.v_dim % 32 != 0)) {
      return unsupported("K/V type q8_0 needs heads of a multiple of 32 values, the model has " +
                         std::to_string(s.k_dim) + " and " + std::to_string(s.v_dim));
    }
    scratch = std::max({scratch, attend_scratch_floats(kTileRows, s.k_dim, s.v_dim),
                        attend_list_scratch_floats(s.k_dim)});
    records = std::max(records, 2 * kTileRows * attend_record_floats(s.v_dim));
  }
  kv_config_ = config;
  kv_layout_ = ops::make_kv_layout(config);
  uint64_t n_bytes = 0;
  if (!checked_mul(kv_layout_.page_bytes, config.max_pages, &n_bytes)) {
    return resource_exhausted("K/V pages: count x size does not fit 64 bits");
  }
  OKIBI_RETURN_IF_ERROR(
      grow(kv_memory_, n_bytes + kReadPast, /*huge=*/true).with_context("K/V pages"));
  attend_record_offset_ = round_up_16(scratch);
  attend_scratch_stride_ =
      align_up(static_cast<uint64_t>(attend_record_offset_ + records) * sizeof(float), 4096) + 64;
  OKIBI_RETURN_IF_ERROR(grow(attend_scratch_,
                             attend_scratch_stride_ * static_cast<uint64_t>(pool_.n_threads()) + 64,
                             false));
  OKIBI_RETURN_IF_ERROR(grow(attend_records_, kMaxRecordBytes, false));
  OKIBI_RETURN_IF_ERROR(set_index(config));
  has_kv_ = true;
  return ok_status();
}

void CpuBackend::copy_page(ops::PageId src, ops::PageId dst, int32_t n_tokens) {
  CHECK(src < kv_config_.max_pages && dst < kv_config_.max_pages && n_tokens >= 0 &&
            n_tokens <= kv_config_.page_tokens,
        "page %u to %u, %d tokens", src, dst, n_tokens);
  if (src == dst || n_tokens == 0) return;
  const uint8_t* from = page(src);
  uint8_t* to = page(dst);
  const auto n = static_cast<uint64_t>(n_tokens);
  const auto page_tokens = static_cast<uint64_t>(kv_config_.page_tokens);
  for (size_t i = 0; i < kv_layout_.layers.size(); ++i) {
    const ops::KvLayerLayout& l = kv_layout_.layers[i];
    const auto n_heads = static_cast<uint64_t>(kv_config_.layers[i].n_kv_heads);
    for (uint64_t h = 0; h < n_heads; ++h) {
      const uint64_t k = l.k_offset + h * page_tokens * l.k_row_bytes;
      const uint64_t v = l.v_offset + h * page_tokens * l.v_row_bytes;
      std::memcpy(to + k, from + k, n * l.k_row_bytes);
      std::memcpy(to + v, from + v, n * l.v_row_bytes);
    }
  }
  copy_index(src, dst, n_tokens);
}

void CpuBackend::discard_page(ops::PageId id) {
  CHECK(id < kv_config_.max_pages, "page %u of %u", id, kv_config_.max_pages);
  kv_memory_.discard(id * kv_layout_.page_bytes, kv_layout_.page_bytes);
  discard_index(id);
}

void CpuBackend::kv_append(int32_t kv_layer, ops::Rows k, ops::Rows v) {
  const ZoneTimer timer(*this, Zone::kKvAppend);
  CHECK(has_kv_ && kv_layer >= 0 && static_cast<size_t>(kv_layer) < kv_layout_.layers.size(),
        "K/V layer %d", kv_layer);
  const ops::KvLayerShape& shape = kv_config_.layers[static_cast<size_t>(kv_layer)];
  const ops::KvLayerLayout& layout = kv_layout_.layers[static_cast<size_t>(kv_layer)];
  const RowsBuffer& keys = rows(k);
  const RowsBuffer& values = rows(v);
  CHECK(keys.cols == int64_t{shape.n_kv_heads} * shape.k_dim &&
            values.cols == int64_t{shape.n_kv_heads} * shape.v_dim,
        "keys of %lld, values of %lld", static_cast<long long>(keys.cols),
        static_cast<long long>(values.cols));
  const auto page_tokens = static_cast<uint32_t>(kv_config_.page_tokens);
  const auto store = kernels_.kv_store[static_cast<size_t>(kv_config_.type)];
  for_rows(plan_->n_rows, keys.cols + values.cols, [&](int64_t r, int) {
    const ops::SequenceSpan& s = plan_->sequences[plan_->row_sequence[static_cast<size_t>(r)]];
    const uint32_t position = s.n_past + (static_cast<uint32_t>(r) - s.first_row);
    DCHECK(position / page_tokens < s.pages.size(), "position %u, %zu pages", position,
           s.pages.size());
    uint8_t* base = page(s.pages[position / page_tokens]);
    const uint64_t row = position % page_tokens;
    for (int32_t h = 0; h < shape.n_kv_heads; ++h) {
      const uint64_t slot_row = static_cast<uint64_t>(h) * page_tokens + row;
      store(keys.row(r) + int64_t{h} * shape.k_dim, shape.k_dim,
            base + layout.k_offset + slot_row * layout.k_row_bytes);
      store(values.row(r) + int64_t{h} * shape.v_dim, shape.v_dim,
            base + layout.v_offset + slot_row * layout.v_row_bytes);
    }
  });
}

// Tiles of every sequence and K/V head, the longest lists of a sequence first so that the last
// tiles handed out are short.
void CpuBackend::plan_attend(AttendCall& call) {
  const int32_t n_kv_heads = call.n_heads / call.group;
  const int64_t n_rows = plan_->n_rows;
  int64_t tile_rows = kTileRows;
  while (tile_rows > kMinTileRows &&
         n_rows * call.n_heads / tile_rows < 4 * int64_t{pool_.n_threads()}) {
    tile_rows /= 2;
  }
  const auto tile = static_cast<uint32_t>(std::max<int64_t>(1, tile_rows / call.group));
  attend_units_.clear();
  for (const ops::SequenceSpan& s : plan_->sequences) {
    const auto n_rows = static_cast<uint32_t>(
        std::clamp<int64_t>(call.max_positions - s.n_past, 0, int64_t{s.n_rows}));
    for (uint32_t t = static_cast<uint32_t>(ceil_div(n_rows, tile)); t-- > 0;) {
      AttendUnit unit{};
      unit.sequence = &s;
      unit.first = t * tile;
      unit.n_queries = static_cast<int32_t>(std::min(tile, n_rows - unit.first));
      const int64_t n_keys = int64_t{s.n_past} + unit.first + unit.n_queries;
      CHECK(ceil_div(n_keys, kv_config_.page_tokens) <= static_cast<int64_t>(s.pages.size()),
            "%lld positions, %zu pages", static_cast<long long>(n_keys), s.pages.size());
      unit.n_partitions = static_cast<int32_t>(ceil_div(n_keys, kAttendPartition));
      for (unit.kv_head = 0; unit.kv_head < n_kv_heads; ++unit.kv_head) {
        attend_units_.push_back(unit);
      }
    }
  }
}

// Cuts the units' lists into jobs when the units alone would leave threads idle.
bool CpuBackend::plan_split(AttendCall& call) {
  const auto n_units = static_cast<int64_t>(attend_units_.size());
  const int64_t n_threads = pool_.n_threads();
  if (n_threads == 1 || n_units >= 4 * n_threads) return false;
  int64_t n_partitions = 0, n_records = 0;
  for (const AttendUnit& u : attend_units_) {
    n_partitions += u.n_partitions;
    n_records += int64_t{u.n_partitions} * u.n_queries * call.group;
  }
  if (n_partitions == n_units ||
      static_cast<uint64_t>(n_records * call.record_floats) * 4 > attend_records_.size()) {
    return false;
  }
  call.partitions_per_job = std::max<int64_t>(1, n_partitions / (8 * n_threads));
  n_records = 0;
  for (AttendUnit& u : attend_units_) {
    u.first_job = call.n_jobs;
    u.first_record = n_records;
    call.n_jobs += ceil_div(u.n_partitions, call.partitions_per_job);
    n_records += int64_t{u.n_partitions} * u.n_queries * call.group;
  }
  return true;
}

// The records of the unit's queries from first_query on for one partition.
void CpuBackend::attend_partition(const AttendCall& call, const AttendUnit& unit, int32_t partition,
                                  int32_t first_query, float* records, int thread) {
  const ops::SequenceSpan& s = *unit.sequence;
  const ops::KvLayerLayout& layout = kv_layout_.layers[static_cast<size_t>(call.kv_layer)];
  const int64_t page_tokens = kv_config_.page_tokens;
  const int64_t begin = int64_t{partition} * kAttendPartition;
  // Positions that the unit's last query sees.
  const int64_t n_seen = int64_t{s.n_past} + unit.first + unit.n_queries;
  const int64_t end = std::min(begin + kAttendPartition, n_seen);
  KvRun runs[kAttendPartition];
  int32_t n_runs = 0;
  for (int64_t p = begin; p < end;) {
    const int64_t in_page = p % page_tokens;
    const int64_t n = std::min(page_tokens - in_page, end - p);
    const uint8_t* base = page(s.pages[static_cast<size_t>(p / page_tokens)]);
    const auto row = static_cast<uint64_t>(unit.kv_head * page_tokens + in_page);
    runs[n_runs++] = {base + layout.k_offset + row * layout.k_row_bytes,
                      base + layout.v_offset + row * layout.v_row_bytes, static_cast<int32_t>(n)};
    p += n;
  }
  int32_t n_keys[kTileRows];
  for (int32_t t = first_query; t < unit.n_queries; ++t) {
    const int64_t seen = int64_t{s.n_past} + unit.first + t + 1 - begin;
    n_keys[t - first_query] = static_cast<int32_t>(std::min<int64_t>(seen, kAttendPartition));
  }
  AttendArgs a;
  a.q = call.q->row(s.first_row + unit.first + first_query) +
        int64_t{unit.kv_head} * call.group * call.k_dim;
  a.q_query_stride = call.q->stride;
  a.q_head_stride = call.k_dim;
  a.n_queries = unit.n_queries - first_query;
  a.n_heads = call.group;
  a.k_dim = call.k_dim;
  a.v_dim = call.v_dim;
  a.scale = call.scale;
  a.runs = runs;
  a.n_runs = n_runs;
  a.n_keys = n_keys;
  a.records = records;
  a.record_head_stride = call.record_floats;
  a.record_query_stride = call.record_floats * call.group;
  a.scratch = attend_scratch(thread);
  attend_run(a, {});
}

namespace {

// The first query of a tile that sees any entry of the partition.
int32_t first_query_of(uint32_t n_past, uint32_t first, int32_t partition) {
  const int64_t begin = int64_t{partition} * kAttendPartition;
  return static_cast<int32_t>(std::max<int64_t>(0, begin - (int64_t{n_past} + first)));
}

}  // namespace

// One tile, partition after partition, merged as it goes.
void CpuBackend::attend_whole(const AttendCall& call, const AttendUnit& unit, int thread) {
  const int64_t query_floats = call.record_floats * call.group;
  float* totals = attend_scratch(thread) + attend_record_offset_;
  float* parts = totals + unit.n_queries * query_floats;
  attend_partition(call, unit, 0, 0, totals, thread);
  for (int32_t p = 1; p < unit.n_partitions; ++p) {
    const int32_t first = first_query_of(unit.sequence->n_past, unit.first, p);
    attend_partition(call, unit, p, first, parts, thread);
    // A query that saw nothing so far cannot exist: partition 0 holds position 0.
    for (int64_t i = 0; i < (unit.n_queries - first) * int64_t{call.group}; ++i) {
      kernels_.attend_merge(totals + first * query_floats + i * call.record_floats,
                            parts + i * call.record_floats, call.v_dim);
    }
  }
  for (int32_t t = 0; t < unit.n_queries; ++t) {
    float* out = call.out->row(unit.sequence->first_row + unit.first + t) +
                 int64_t{unit.kv_head} * call.group * call.v_dim;
    for (int32_t h = 0; h < call.group; ++h) {
      kernels_.attend_finish(totals + t * query_floats + h * call.record_floats, call.v_dim,
                             out + int64_t{h} * call.v_dim);
    }
  }
}

// All (tile, partition) pairs over threads, then each query's merge.
void CpuBackend::attend_split(const AttendCall& call) {
  auto* records = reinterpret_cast<float*>(attend_records_.data());
  const int64_t query_floats = call.record_floats * call.group;
  pool_.parallel_for(call.n_jobs, 1, [&](int64_t begin, int64_t end, int thread) {
    for (const AttendUnit& u : attend_units_) {
      const int64_t first = std::max(begin - u.first_job, int64_t{0}) * call.partitions_per_job;
      const int64_t last =
          std::min((end - u.first_job) * call.partitions_per_job, int64_t{u.n_partitions});
      float* unit_records = records + u.first_record * call.record_floats;
      for (int64_t p = first; p < last; ++p) {
        const auto partition = static_cast<int32_t>(p);
        const int32_t q = first_query_of(u.sequence->n_past, u.first, partition);
        attend_partition(call, u, partition, q, unit_records + (p * u.n_queries + q) * query_floats,
                         thread);
      }
    }
  });
  const auto n_units = static_cast<int64_t>(attend_units_.size());
  pool_.parallel_for(n_units, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const AttendUnit& u = attend_units_[static_cast<size_t>(i)];
      float* totals = records + u.first_record * call.record_floats;
      for (int32_t t = 0; t < u.n_queries; ++t) {
        float* out = call.out->row(u.sequence->first_row + u.first + t) +
                     int64_t{u.kv_head} * call.group * call.v_dim;
        for (int32_t h = 0; h < call.group; ++h) {
          float* total = totals + t * query_floats + h * call.record_floats;
          for (int32_t p = 1; p < u.n_partitions; ++p) {
            if (t < first_query_of(u.sequence->n_past, u.first, p)) break;
            kernels_.attend_merge(total, total + int64_t{p} * u.n_queries * query_floats,
                                  call.v_dim);
          }
          kernels_.attend_finish(total, call.v_dim, out + int64_t{h} * call.v_dim);
        }
      }
    }
  });
}

void CpuBackend::attend(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale,
                        ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kAttend,
                        kernels_.attend_name[static_cast<size_t>(kv_config_.type)]);
  attend_dense(kv_layer, q, n_heads, scale, out, INT64_MAX);
}

void CpuBackend::attend_dense(int32_t kv_layer, ops::Rows q, int32_t n_heads, float scale,
                              ops::Rows out, int64_t max_positions) {
  CHECK(has_kv_ && kv_layer >= 0 && static_cast<size_t>(kv_layer) < kv_layout_.layers.size(),
        "K/V layer %d", kv_layer);
  const ops::KvLayerShape& shape = kv_config_.layers[static_cast<size_t>(kv_layer)];
  const RowsBuffer& queries = rows(q);
  CHECK(n_heads > 0 && n_heads % shape.n_kv_heads == 0 && q.id != out.id &&
            queries.cols == int64_t{n_heads} * shape.k_dim && queries.n_valid == plan_->n_rows,
        "%d query heads over %d K/V heads, rows of %lld", n_heads, shape.n_kv_heads,
        static_cast<long long>(queries.cols));
  const int32_t group = n_heads / shape.n_kv_heads;
  CHECK(group <= kTileRows, "%d query heads share a K/V head", group);
  AttendCall call{};
  call.q = &queries;
  call.out = &output(out, queries.n_valid, int64_t{n_heads} * shape.v_dim);
  call.kv_layer = kv_layer;
  call.n_heads = n_heads;
  call.group = group;
  call.k_dim = shape.k_dim;
  call.v_dim = shape.v_dim;
  call.scale = scale;
  call.record_floats = attend_record_floats(shape.v_dim);
  call.max_positions = max_positions;
  plan_attend(call);
  int64_t work = 0;
  for (const AttendUnit& u : attend_units_) {
    work += (int64_t{u.sequence->n_past} + u.first + u.n_queries) * u.n_queries * group *
            (shape.k_dim + shape.v_dim);
  }
  const bool is_small = work < kMinParallelWork;
  if (!is_small && plan_split(call)) return attend_split(call);
  const auto n_units = static_cast<int64_t>(attend_units_.size());
  const int64_t grain = is_small ? std::max<int64_t>(n_units, 1) : 1;
  pool_.parallel_for(n_units, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      attend_whole(call, attend_units_[static_cast<size_t>(i)], thread);
    }
  });
}

}  // namespace okibi::cpu
