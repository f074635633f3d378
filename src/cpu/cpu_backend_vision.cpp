// Operations on pictures: attention inside a view, layer norm, GELU, joining the rows of
// neighbouring patches, and putting projected rows into a prompt. A view's rows meet nobody else's:
// tiles of queries and threads change no bit.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/bf16_tiles.h"
#include "cpu/cpu_backend_impl.h"
#include "cpu/view_attend.h"

namespace okibi::cpu {
namespace {

// Queries of a tile; the attention kernels take no more (kernels/*/attend.cpp).
constexpr int64_t kTileQueries = 64;

}  // namespace

// What a call of attend_view reads.
struct CpuBackend::ViewRows {
  RowsBuffer& q;
  const RowsBuffer& k;
  const RowsBuffer& v;
};

// Some queries of one view and one head.
struct CpuBackend::ViewTile {
  const RowsBuffer* q;
  RowsBuffer* out;
  float scale;
  int64_t first_row, n_rows;  // of the view
  int64_t head, first_query, n_queries;
};

void CpuBackend::put_embeddings(ops::Rows inout) {
  check_all_rows();
  if (plan_->embeddings.empty()) return;
  const ZoneTimer timer(*this, Zone::kEmbed);
  RowsBuffer& x = rows(inout);
  CHECK(plan_->embeddings.size() == plan_->n_rows && x.n_valid == plan_->n_rows,
        "%zu embeddings, %u rows", plan_->embeddings.size(), plan_->n_rows);
  for (int64_t r = 0; r < x.n_valid; ++r) {
    const float* values = plan_->embeddings[static_cast<size_t>(r)];
    if (values == nullptr) continue;
    std::memcpy(x.row(r), values, static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void CpuBackend::add_bias(ops::Rows inout, ops::Vector bias) {
  const ZoneTimer timer(*this, Zone::kOther);
  RowsBuffer& x = rows(inout);
  const std::vector<float>& b = vector(bias);
  CHECK(static_cast<int64_t>(b.size()) == x.cols, "bias of %zu, rows of %lld", b.size(),
        static_cast<long long>(x.cols));
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
    float* row = x.row(r);
    for (int64_t i = 0; i < x.cols; ++i) row[i] += b[static_cast<size_t>(i)];
  });
}

void CpuBackend::layer_norm(ops::Rows inout, ops::Vector bias, ops::Vector gamma, ops::Vector beta,
                            float eps, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kNorm);
  RowsBuffer& x = rows(inout);
  const std::vector<float>& g = vector(gamma);
  const std::vector<float>& b = vector(beta);
  const float* added = bias.valid() ? vector(bias).data() : nullptr;
  CHECK(static_cast<int64_t>(g.size()) == x.cols && g.size() == b.size() &&
            (!bias.valid() || vector(bias).size() == g.size()),
        "gamma of %zu, beta of %zu, rows of %lld", g.size(), b.size(),
        static_cast<long long>(x.cols));
  RowsBuffer& y = output(out, x.n_valid, x.cols);
  if (!y.is_rounded) {
    for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
      kernels_.layer_norm(x.row(r), added, g.data(), b.data(), x.cols, eps, y.row(r));
    });
    return;
  }
  CHECK(static_cast<uint64_t>(x.cols) * sizeof(float) <= linear_scratch_stride_, "rows of %lld",
        static_cast<long long>(x.cols));
  const int64_t n_pairs = bf16_pairs(x.n_valid);
  for_rows(n_pairs * kBf16PairRows, x.cols, [&](int64_t r, int thread) {
    auto* row = reinterpret_cast<float*>(linear_scratch(thread));
    if (r < x.n_valid) {
      kernels_.layer_norm(x.row(r), added, g.data(), b.data(), x.cols, eps, row);
    }
    kernels_.round_row(r < x.n_valid ? row : nullptr, x.cols, /*n_parts=*/1, n_pairs, r,
                       y.memory.data());
  });
}

void CpuBackend::gelu(ops::Rows inout, ops::Vector bias, ops::Gelu kind) {
  const ZoneTimer timer(*this, Zone::kGelu);
  RowsBuffer& x = rows(inout);
  const std::vector<float>& b = vector(bias);
  CHECK(static_cast<int64_t>(b.size()) == x.cols, "bias of %zu, rows of %lld", b.size(),
        static_cast<long long>(x.cols));
  const auto kernel = kind == ops::Gelu::kTanh ? kernels_.gelu_tanh : kernels_.gelu_erf;
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) { kernel(x.row(r), b.data(), x.cols); });
}

void CpuBackend::join_rows(ops::Rows in, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kOther);
  const RowsBuffer& x = rows(in);
  const int64_t group = rows(out).cols / x.cols;
  const auto n = static_cast<int64_t>(plan_->output_rows.size());
  CHECK(in.id != out.id && group >= 1 && rows(out).cols == group * x.cols && n % group == 0,
        "%lld rows of %lld joined into rows of %lld", static_cast<long long>(n),
        static_cast<long long>(x.cols), static_cast<long long>(rows(out).cols));
  RowsBuffer& y = output(out, n / group, group * x.cols);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t r = plan_->output_rows[static_cast<size_t>(i)];
    CHECK(r < plan_->n_rows, "row %u of %u", r, plan_->n_rows);
    std::memcpy(y.row(i / group) + i % group * x.cols, x.row(r),
                static_cast<size_t>(x.cols) * sizeof(float));
  }
}

Status CpuBackend::set_view_attention(int64_t max_rows, int32_t n_heads, int32_t head_dim) {
  CHECK(view_max_rows_ == 0 && max_rows > 0 && n_heads > 0 && head_dim > 0, "%lld rows of %d x %d",
        static_cast<long long>(max_rows), n_heads, head_dim);
  const auto floats = static_cast<uint64_t>(max_rows) * static_cast<uint64_t>(n_heads) *
                      static_cast<uint64_t>(head_dim);
  OKIBI_RETURN_IF_ERROR(grow(view_keys_, floats * sizeof(float) + kReadPast, false));
  OKIBI_RETURN_IF_ERROR(grow(view_values_, floats * sizeof(float) + kReadPast, false));
  // A thread's scratch: the kernel's own, then totals and parts of a tile's records.
  const int64_t scratch = round_up_16(attend_scratch_floats(kTileQueries, head_dim, head_dim)) +
                          2 * kTileQueries * attend_record_floats(head_dim);
  auto scratch_bytes = static_cast<uint64_t>(scratch) * sizeof(float);
  if (kernels_.view_attend != nullptr) {
    const auto packed =
        static_cast<uint64_t>(n_heads * view_packed_bytes(max_rows, head_dim)) + kReadPast;
    for (MappedBuffer& buffer : view_packed_) {
      OKIBI_RETURN_IF_ERROR(grow(buffer, packed, /*huge=*/true));
    }
    scratch_bytes = std::max(scratch_bytes, static_cast<uint64_t>(view_scratch_bytes(head_dim)));
  }
  view_scratch_stride_ = align_up(scratch_bytes, 4096) + 64;
  OKIBI_RETURN_IF_ERROR(grow(
      view_scratch_, view_scratch_stride_ * static_cast<uint64_t>(pool_.n_threads()) + 64, false));
  view_max_rows_ = max_rows;
  view_heads_ = n_heads;
  view_head_dim_ = head_dim;
  return ok_status();
}

// One tile against the whole view, partition after partition, as attend() does it.
void CpuBackend::attend_view_tile(const ViewTile& t, int thread) {
  const int64_t dim = view_head_dim_;
  const int64_t record = attend_record_floats(dim);
  auto* scratch = reinterpret_cast<float*>(view_scratch_.data() +
                                           static_cast<uint64_t>(thread) * view_scratch_stride_);
  float* totals = scratch + round_up_16(attend_scratch_floats(kTileQueries, dim, dim));
  float* parts = totals + kTileQueries * record;
  // A head's rows of this view lie together.
  const int64_t begin = (t.head * view_max_rows_ + t.first_row) * dim;
  const auto* keys = reinterpret_cast<const float*>(view_keys_.data()) + begin;
  const auto* values = reinterpret_cast<const float*>(view_values_.data()) + begin;
  for (int64_t p = 0; p < t.n_rows; p += kAttendPartition) {
    const auto n = static_cast<int32_t>(std::min<int64_t>(kAttendPartition, t.n_rows - p));
    int32_t n_keys[kTileQueries];
    std::fill_n(n_keys, t.n_queries, n);
    const KvRun run{reinterpret_cast<const uint8_t*>(keys + p * dim),
                    reinterpret_cast<const uint8_t*>(values + p * dim), n};
    AttendArgs a;
    a.q = t.q->row(t.first_row + t.first_query) + t.head * dim;
    a.q_query_stride = t.q->stride;
    a.q_head_stride = dim;
    a.n_queries = static_cast<int32_t>(t.n_queries);
    a.n_heads = 1;
    a.k_dim = a.v_dim = static_cast<int32_t>(dim);
    a.scale = t.scale;
    a.runs = &run;
    a.n_runs = 1;
    a.n_keys = n_keys;
    a.records = p == 0 ? totals : parts;
    a.record_query_stride = record;
    a.record_head_stride = record;
    a.scratch = scratch;
    kernels_.attend[kKvF32](a);
    if (p == 0) continue;
    for (int64_t i = 0; i < t.n_queries; ++i) {
      kernels_.attend_merge(totals + i * record, parts + i * record, a.v_dim);
    }
  }
  for (int64_t i = 0; i < t.n_queries; ++i) {
    kernels_.attend_finish(totals + i * record, static_cast<int32_t>(dim),
                           t.out->row(t.first_row + t.first_query + i) + t.head * dim);
  }
}

// The same with factors rounded to bfloat16, by units of the level: all heads of a view are packed
// once, then every tile of queries meets all keys of its head.
void CpuBackend::pack_view(const ops::ViewAttention& attention, const ViewRows& in,
                           const ops::SequenceSpan& view) {
  const int64_t dim = view_head_dim_, packed = view_packed_bytes(view.n_rows, dim);
  pool_.parallel_for(view_heads_, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t h = begin; h < end; ++h) {
      kernels_.view_attend->pack({.q = in.q.row(view.first_row) + h * dim,
                                  .k = in.k.row(view.first_row) + h * dim,
                                  .v = in.v.row(view.first_row) + h * dim,
                                  .q_stride = in.q.stride,
                                  .k_stride = in.k.stride,
                                  .v_stride = in.v.stride,
                                  .q_bias = vector(attention.q_bias).data() + h * dim,
                                  .k_bias = vector(attention.k_bias).data() + h * dim,
                                  .v_bias = vector(attention.v_bias).data() + h * dim,
                                  .n_rows = view.n_rows,
                                  .head_dim = dim,
                                  .queries = view_packed_[0].data() + h * packed,
                                  .keys = view_packed_[1].data() + h * packed,
                                  .values = view_packed_[2].data() + h * packed});
    }
  });
}

void CpuBackend::attend_packed_view(float scale, const ops::SequenceSpan& view, RowsBuffer& out) {
  const int64_t dim = view_head_dim_, packed = view_packed_bytes(view.n_rows, dim);
  const int64_t n_tiles = ceil_div(view.n_rows, kViewTileQueries);
  // Longer ranges begin and end less often.
  const int64_t grain = std::max<int64_t>(1, view_heads_ * n_tiles / (8 * pool_.n_threads()));
  pool_.parallel_for(view_heads_ * n_tiles, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t u = begin; u < end;) {
      const int64_t h = u / n_tiles, tile = u % n_tiles;
      const int64_t n = std::min(end - u, n_tiles - tile), first = tile * kViewTileQueries;
      u += n;
      kernels_.view_attend->attend(
          {.queries = view_packed_[0].data() + h * packed,
           .keys = view_packed_[1].data() + h * packed,
           .values = view_packed_[2].data() + h * packed,
           .n_rows = view.n_rows,
           .head_dim = dim,
           .first_query = first,
           .n_queries = std::min<int64_t>(n * kViewTileQueries, view.n_rows - first),
           .scale = scale,
           .out = out.is_rounded ? nullptr : out.row(view.first_row + first) + h * dim,
           .out_stride = out.stride,
           .rounded = {.tiles = out.is_rounded ? out.memory.data() : nullptr,
                       .n_pairs = bf16_pairs(view.n_rows),
                       .n_in = out.cols,
                       .first_step = h * dim / kBf16StepValues},
           .scratch = view_scratch_.data() + static_cast<uint64_t>(thread) * view_scratch_stride_});
    }
  });
}

// Products that leave queries, keys and values where pack_view would put them; for that, a view
// must begin a pair of tiles and a head a step, or the floats take the way over q, k and v.
void CpuBackend::project_attend_view(const ops::ViewAttention& a, ops::Rows in,
                                     std::span<const ops::Weight, 3> weights, ops::Rows q,
                                     ops::Rows k, ops::Rows v, ops::Rows out) {
  bool fits = rounds_view(a) && plan_->sequences.size() == 1 && view_head_dim_ % 32 == 0;
  for (const ops::Weight w : weights) {
    fits = fits && weight(w).kernels->activation == ActivationFormat::kBf16;
  }
  if (!fits) {
    const ops::Rows between[] = {q, k, v};
    project(in, weights, between);
    if (!any_rows(out).is_rounded) return attend_view(a, q, k, v, out);
    // A unit of work reads a part of q and then writes the same part of its results.
    ViewRows rows_in = {rows(q), rows(k), rows(v)};
    attend_rows(a, rows_in, rows_in.q);
    RowsBuffer& rounded = output(out, plan_->n_rows, view_heads_ * view_head_dim_);
    round_rows(rows_in.q, rounded.n_valid, /*n_parts=*/1, rounded.memory.data());
    return;
  }
  const RowsBuffer& input = any_rows(in);
  const int64_t n = input.n_valid, width = view_heads_ * view_head_dim_;
  CHECK(a.n_heads == view_heads_ && n == plan_->n_rows && n <= view_max_rows_,
        "%lld rows, %d heads", static_cast<long long>(n), a.n_heads);
  {
    const ZoneTimer timer(*this, Zone::kLinear, weight(weights[0]).kernels->gemm_name);
    const Activations rounded = quantize(input, n, ActivationFormat::kBf16, /*for_gemm=*/true);
    const ops::Vector biases[] = {a.q_bias, a.k_bias, a.v_bias};
    using As = RoundedOutput::As;
    constexpr As kAs[] = {As::kQueries, As::kKeys, As::kValues};
    Product products[3];
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<float>& bias = vector(biases[i]);
      CHECK(weights[i].n_in == input.cols && weights[i].n_out == width &&
                static_cast<int64_t>(bias.size()) == width,
            "%s: heads of %lld in all", weight(weights[i]).name.c_str(),
            static_cast<long long>(width));
      products[i] = {.weight = &weight(weights[i]),
                     .input = rounded,
                     .rounded = {kAs[i], view_packed_[i].data(), bias.data(), bf16_pairs(n)}};
    }
    run_products(products, n, /*accumulate=*/false);
  }
  const ZoneTimer timer(*this, Zone::kAttend, kernels_.view_attend->name);
  attend_packed_view(a.scale, plan_->sequences[0], output(out, n, width));
}

// The step's keys and values with their biases, head after head, and the bias of the queries.
void CpuBackend::spread_view_rows(const ops::ViewAttention& a, ViewRows& in) {
  const int64_t width = view_heads_ * view_head_dim_;
  const std::vector<float>& q_bias = vector(a.q_bias);
  const std::vector<float>& k_bias = vector(a.k_bias);
  const std::vector<float>& v_bias = vector(a.v_bias);
  auto* k_rows = reinterpret_cast<float*>(view_keys_.data());
  auto* v_rows = reinterpret_cast<float*>(view_values_.data());
  for_rows(plan_->n_rows, 3 * width, [&](int64_t r, int) {
    float* query = in.q.row(r);
    for (int64_t i = 0; i < width; ++i) query[i] += q_bias[static_cast<size_t>(i)];
    for (int64_t h = 0; h < view_heads_; ++h) {
      const int64_t from = h * view_head_dim_, to = (h * view_max_rows_ + r) * view_head_dim_;
      for (int64_t i = 0; i < view_head_dim_; ++i) {
        k_rows[to + i] = in.k.row(r)[from + i] + k_bias[static_cast<size_t>(from + i)];
        v_rows[to + i] = in.v.row(r)[from + i] + v_bias[static_cast<size_t>(from + i)];
      }
    }
  });
}

void CpuBackend::attend_view(const ops::ViewAttention& a, ops::Rows q, ops::Rows k, ops::Rows v,
                             ops::Rows out) {
  CHECK(out.id != q.id && out.id != k.id && out.id != v.id, "rows %d", out.id);
  ViewRows in = {rows(q), rows(k), rows(v)};
  attend_rows(a, in, output(out, plan_->n_rows, view_heads_ * view_head_dim_));
}

void CpuBackend::attend_rows(const ops::ViewAttention& a, ViewRows& in, RowsBuffer& result) {
  check_all_rows();
  const bool rounds = rounds_view(a);
  const ZoneTimer timer(*this, Zone::kAttend,
                        rounds ? kernels_.view_attend->name : kernels_.attend_name[kKvF32]);
  const int64_t n = plan_->n_rows, width = view_heads_ * view_head_dim_;
  CHECK(a.n_heads == view_heads_ && n <= view_max_rows_ && in.q.cols == width &&
            in.k.cols == width && in.v.cols == width && in.q.n_valid == n && in.k.n_valid == n &&
            in.v.n_valid == n && !result.is_rounded,
        "%lld rows of %lld, %d heads", static_cast<long long>(n), static_cast<long long>(in.q.cols),
        a.n_heads);
  for (const ops::Vector bias : {a.q_bias, a.k_bias, a.v_bias}) {
    CHECK(static_cast<int64_t>(vector(bias).size()) == width, "a bias of %zu", vector(bias).size());
  }
  if (rounds) {
    for (const ops::SequenceSpan& s : plan_->sequences) {
      pack_view(a, in, s);
      attend_packed_view(a.scale, s, result);
    }
    return;
  }
  spread_view_rows(a, in);
  // Units are tiles of a head of a view; a head's tiles follow each other, so that a thread finds
  // its keys in the cache.
  for (const ops::SequenceSpan& s : plan_->sequences) {
    const int64_t n_tiles = ceil_div(s.n_rows, kTileQueries);
    pool_.parallel_for(view_heads_ * n_tiles, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t first = u % n_tiles * kTileQueries;
        attend_view_tile({&in.q, &result, a.scale, s.first_row, s.n_rows, u / n_tiles, first,
                          std::min<int64_t>(kTileQueries, s.n_rows - first)},
                         thread);
      }
    });
  }
}

}  // namespace okibi::cpu
