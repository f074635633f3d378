// Opening the backend, its identity, and the memory of weights, vectors and row buffers.
#include "cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "cpu/activation_rows.h"
#include "cpu/bf16_tiles.h"
#include "cpu/cpu_backend_impl.h"
#include "cpu/make_index_kernels.h"
#include "cpu/make_table.h"

namespace okibi::cpu {
Result<std::unique_ptr<ops::Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  if (options.n_threads < 1 || options.n_threads > 1024) {
    return invalid_argument(
        fmt::format("the CPU backend takes 1 to 1024 threads, not {}", options.n_threads));
  }
  OKIBI_ASSIGN_OR_RETURN(const CpuLevel level, choose_level(options.level, host_cpu()));
  return std::unique_ptr<ops::Backend>(
      std::make_unique<CpuBackend>(level, options.n_threads, options.activations));
}

CpuBackend::CpuBackend(CpuLevel level, int n_threads, ActivationType activations)
    : kernels_(make_table(level)),
      stream_kernels_(make_stream_kernels(level)),
      recurrent_kernels_(make_recurrent_kernels(level)),
      experts_kernels_(make_experts_kernels(level)),
      index_kernels_(make_index_kernels(level)),
      activations_(activations),
      pool_(n_threads) {}

std::string CpuBackend::numeric_identity() const {
  return fmt::format("cpu/{}/r{}/kv={}/act={}", kernels_.level, kKernelRevision,
                     has_kv_ ? ops::kv_type_name(kv_config_.type) : "none", name_of_activations());
}

// What they are at this level.
const char* CpuBackend::name_of_activations() const {
  if (is_exact()) return "f32";
  return activations_ == ActivationType::kBf16 && kernels_.round_row != nullptr ? "bf16" : "q8";
}

std::string CpuBackend::describe_weight(ops::Weight w) const {
  const PackedWeight& p = weight(w);
  const std::string count = p.n_matrices > 1 ? fmt::format(" x {}", p.n_matrices) : "";
  return fmt::format("{} {}{} -> {} ({}), {}", p.name, name_of(p.type), count, p.kernels->gemm_name,
                     p.kernels->layout, p.kernels->gemv_name);
}

const LinearKernels* CpuBackend::kernels_for(const ops::WeightSource& source) const {
  const auto number = static_cast<uint32_t>(source.type);
  if (number >= kMaxDTypes) return nullptr;
  const LinearKernels& rounded = kernels_.linear_bf16[number];
  // Experts meet few rows each: units that take many at a time are of no use to them.
  if (source.may_round && source.n_matrices == 1 && !is_exact() && rounded.layout != nullptr)
    return &rounded;
  const LinearKernels& normal = kernels_.linear[number];
  const LinearKernels& exact = kernels_.linear_f32[number];
  if (is_exact() && exact.layout != nullptr) return &exact;
  if (is_exact() && normal.activation != ActivationFormat::kF32) return nullptr;
  return normal.layout != nullptr ? &normal : nullptr;
}

uint64_t CpuBackend::packed_bytes(const ops::WeightSource& source) const {
  const LinearKernels* k = kernels_for(source);
  if (k == nullptr) return 0;
  const int64_t n_panels = source.n_matrices * ceil_div(source.n_out, k->panel_rows);
  return static_cast<uint64_t>(n_panels * k->panel_bytes(source.n_in)) + kReadPast;
}

Result<ops::Weight> CpuBackend::add_weight(const ops::WeightSource& source) {
  const LinearKernels* k = kernels_for(source);
  if (k == nullptr) {
    return unsupported(fmt::format("{}: the {} level has no product for type {}", source.name,
                                   kernels_.level, name_of(source.type)));
  }
  const DTypeTraits& traits = traits_of(source.type);
  if (source.n_in <= 0 || source.n_out <= 0 || source.n_matrices <= 0 ||
      source.n_in % traits.block_size != 0) {
    return invalid_argument(fmt::format(
        "{}: expected a matrix whose rows are a positive multiple of {} values ({}), found {} x {}",
        source.name, traits.block_size, traits.name, source.n_out, source.n_in));
  }
  CHECK(k->panel_rows >= 1 && k->panel_rows <= kMaxPanelRows, "%s", k->layout);
  PackedWeight p;
  const int64_t panel_bytes = k->panel_bytes(source.n_in);
  p.n_panels = ceil_div(source.n_out, k->panel_rows);
  p.n_matrices = source.n_matrices;
  auto memory = weight_memory_.take(packed_bytes(source));
  if (!memory.ok()) return memory.status().with_context(source.name);
  uint8_t* panels = memory.value();
  p.matrix = {panels, source.n_in, source.n_out, panel_bytes, source.scale};
  p.kernels = k;
  p.type = source.type;
  p.name = source.name;
  const auto file_row_bytes =
      static_cast<int64_t>(row_bytes(source.type, static_cast<uint64_t>(source.n_in)));
  pack_panels(source, p, panels);
  max_n_in_ = std::max(max_n_in_, source.n_in);
  if (is_bf16(k->activation)) {
    int64_t& most = max_bf16_n_in_[bf16_parts(k->activation) - 1];
    most = std::max(most, source.n_in);
  }
  const int64_t scratch = k->scratch_bytes == nullptr ? 0 : k->scratch_bytes(source.n_in);
  // An embedding passes one file row through the same scratch.
  const auto wanted = static_cast<uint64_t>(std::max({scratch, file_row_bytes, int64_t{4096}}));
  linear_scratch_stride_ = std::max(linear_scratch_stride_, align_up(wanted, 64));
  OKIBI_RETURN_IF_ERROR(reserve_scratch());
  weights_.push_back(std::move(p));
  return ops::Weight{static_cast<int32_t>(weights_.size() - 1), source.n_in, source.n_out,
                     source.n_matrices};
}

// The panels of all matrices in one list. A matrix begins at a panel of its own.
void CpuBackend::pack_panels(const ops::WeightSource& source, const PackedWeight& p,
                             uint8_t* panels) {
  const LinearKernels& k = *p.kernels;
  const int64_t panel_bytes = p.matrix.panel_bytes, n_panels = p.n_panels;
  const auto file_row_bytes =
      static_cast<int64_t>(row_bytes(source.type, static_cast<uint64_t>(source.n_in)));
  const auto pack = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % n_panels * k.panel_rows;  // of its matrix
      k.pack(source.data + (i / n_panels * source.n_out + first) * file_row_bytes,
             std::min<int64_t>(k.panel_rows, source.n_out - first), source.n_in,
             panels + i * panel_bytes);
    }
  };
  pool_.parallel_for(p.n_matrices * n_panels, ceil_div(1 << 20, panel_bytes), pack);
}

Result<ops::Vector> CpuBackend::add_vector(std::span<const float> values) {
  vectors_.emplace_back(values.begin(), values.end());
  return ops::Vector{static_cast<int32_t>(vectors_.size() - 1),
                     static_cast<int64_t>(values.size())};
}

Result<ops::Rows> CpuBackend::add_rows(int64_t max_rows, int64_t cols) {
  CHECK(max_rows > 0 && cols > 0, "rows %lld x %lld", static_cast<long long>(max_rows),
        static_cast<long long>(cols));
  RowsBuffer buffer;
  buffer.max_rows = max_rows;
  buffer.cols = cols;
  buffer.stride = padded_stride(cols, sizeof(float));
  uint64_t n_bytes = 0;
  // From 16 rows on the same memory has room for them as bfloat16 tiles (feed_forward).
  const int64_t n_allocated = std::max<int64_t>(max_rows, kBf16PairRows / 2);
  if (!checked_mul(static_cast<uint64_t>(n_allocated), static_cast<uint64_t>(buffer.stride) * 4,
                   &n_bytes)) {
    return resource_exhausted(fmt::format("activations of {} x {} do not fit", max_rows, cols));
  }
  OKIBI_RETURN_IF_ERROR(grow(buffer.memory, n_bytes + kReadPast, /*huge=*/true));
  max_rows_ = std::max(max_rows_, max_rows);
  OKIBI_RETURN_IF_ERROR(reserve_scratch());
  rows_.push_back(std::move(buffer));
  return ops::Rows{static_cast<int32_t>(rows_.size() - 1), cols};
}

Result<ops::Rows> CpuBackend::add_input_rows(int64_t max_rows, int64_t cols,
                                             std::span<const ops::Weight> readers) {
  for (const ops::Weight w : readers) {
    CHECK(w.n_in == cols, "%s reads rows of %lld", weight(w).name.c_str(),
          static_cast<long long>(cols));
    if (weight(w).kernels->activation != ActivationFormat::kBf16) return add_rows(max_rows, cols);
  }
  RowsBuffer buffer;
  buffer.max_rows = max_rows;
  buffer.cols = cols;
  buffer.is_rounded = true;
  OKIBI_RETURN_IF_ERROR(grow(buffer.memory,
                             static_cast<uint64_t>(bf16_tiles_bytes(1, max_rows, cols)),
                             /*huge=*/true));
  rows_.push_back(std::move(buffer));
  return ops::Rows{static_cast<int32_t>(rows_.size() - 1), cols};
}

// Replaces a scratch buffer by a larger one; its content is not kept.
Status CpuBackend::grow(MappedBuffer& buffer, uint64_t n_bytes, bool huge) {
  if (buffer.size() >= n_bytes) return ok_status();
  OKIBI_ASSIGN_OR_RETURN(buffer, MappedBuffer::allocate(n_bytes, huge));
  return ok_status();
}

Status CpuBackend::reserve_scratch() {
  const auto n = static_cast<uint64_t>(max_rows_);
  OKIBI_RETURN_IF_ERROR(
      grow(q8b32_, n * q8_strides(ActivationFormat::kQ8B32, max_n_in_).bytes_per_row + kReadPast,
           false));
  OKIBI_RETURN_IF_ERROR(
      grow(q8b256_, n * q8_strides(ActivationFormat::kQ8B256, max_n_in_).bytes_per_row + kReadPast,
           false));
  if (kernels_.make_tiles != nullptr) {
    const uint64_t n_bytes = static_cast<uint64_t>(
        std::max(tiles_bytes(ActivationFormat::kQ8B32, max_rows_, max_n_in_),
                 tiles_bytes(ActivationFormat::kQ8B256, max_rows_, max_n_in_)));
    for (MappedBuffer& buffer : tiles_) OKIBI_RETURN_IF_ERROR(grow(buffer, n_bytes, true));
  }
  for (int i = 0; i < 2; ++i) {
    const int64_t n_bytes = bf16_tiles_bytes(i + 1, max_rows_, max_bf16_n_in_[i]);
    OKIBI_RETURN_IF_ERROR(grow(bf16_tiles_[i], static_cast<uint64_t>(n_bytes), true));
  }
  return grow(linear_scratch_,
              linear_scratch_stride_ * static_cast<uint64_t>(pool_.n_threads()) + kReadPast, true);
}

const CpuBackend::PackedWeight& CpuBackend::weight(ops::Weight w) const {
  CHECK(w.id >= 0 && static_cast<size_t>(w.id) < weights_.size(), "weight %d of %zu", w.id,
        weights_.size());
  return weights_[static_cast<size_t>(w.id)];
}
const std::vector<float>& CpuBackend::vector(ops::Vector v) const {
  CHECK(v.id >= 0 && static_cast<size_t>(v.id) < vectors_.size(), "vector %d of %zu", v.id,
        vectors_.size());
  return vectors_[static_cast<size_t>(v.id)];
}
CpuBackend::RowsBuffer& CpuBackend::any_rows(ops::Rows r) {
  CHECK(r.id >= 0 && static_cast<size_t>(r.id) < rows_.size(), "rows %d of %zu", r.id,
        rows_.size());
  return rows_[static_cast<size_t>(r.id)];
}
CpuBackend::RowsBuffer& CpuBackend::rows(ops::Rows r) {
  RowsBuffer& buffer = any_rows(r);
  CHECK(!buffer.is_rounded, "rows %d are for products only", r.id);
  return buffer;
}
const CpuBackend::RowsBuffer& CpuBackend::rows(ops::Rows r) const {
  return const_cast<CpuBackend*>(this)->rows(r);
}

CpuBackend::RowsBuffer& CpuBackend::output(ops::Rows out, int64_t n_rows, int64_t cols) {
  RowsBuffer& buffer = any_rows(out);
  CHECK(buffer.cols == cols && n_rows <= buffer.max_rows,
        "rows %d holds %lld x %lld, the operation writes %lld x %lld", out.id,
        static_cast<long long>(buffer.max_rows), static_cast<long long>(buffer.cols),
        static_cast<long long>(n_rows), static_cast<long long>(cols));
  buffer.n_valid = n_rows;
  return buffer;
}

std::span<const float> CpuBackend::read(ops::Rows r, int64_t row) const {
  const RowsBuffer& buffer = rows(r);
  CHECK(row >= 0 && row < buffer.max_rows, "row %lld", static_cast<long long>(row));
  return {buffer.row(row), static_cast<size_t>(buffer.cols)};
}

void CpuBackend::write(ops::Rows r, int64_t row, std::span<const float> values) {
  RowsBuffer& buffer = rows(r);
  CHECK(row >= 0 && row < buffer.max_rows && static_cast<int64_t>(values.size()) == buffer.cols,
        "row %lld, %zu values", static_cast<long long>(row), values.size());
  std::memcpy(buffer.row(row), values.data(), values.size_bytes());
}

void CpuBackend::begin_step(const ops::BatchPlan& plan) {
  CHECK(plan_ == nullptr, "the last step has not ended");
  uint64_t n = 0;
  for (const ops::SequenceSpan& s : plan.sequences) {
    CHECK(s.first_row == n, "sequences do not cover the rows in order");
    n += s.n_rows;
  }
  CHECK(n == plan.n_rows && plan.positions.size() == n && plan.tokens.size() == n,
        "%u rows planned, %llu in sequences", plan.n_rows, static_cast<unsigned long long>(n));
  plan_ = &plan;
  ++n_steps_;
  for (RowsBuffer& buffer : rows_) buffer.n_valid = plan.n_rows;
  for (RopeTable& table : ropes_) table.ready = false;
}

void CpuBackend::end_step() {
  CHECK(plan_ != nullptr, "no step has begun");
  plan_ = nullptr;
  layer_ = -1;
  layer_kind_ = "";
}

void CpuBackend::set_layer(int32_t layer, const char* kind) {
  layer_ = layer;
  layer_kind_ = kind;
}

Activations CpuBackend::quantize(const RowsBuffer& in, int64_t n_rows, ActivationFormat format,
                                 bool for_gemm) {
  if (in.is_rounded) {
    CHECK(format == ActivationFormat::kBf16, "rounded rows for another format");
    return bf16_activations(in.memory.data(), n_rows);
  }
  Activations a;
  a.x = in.row(0);
  a.x_stride = in.stride;
  if (format == ActivationFormat::kF32) return a;
  if (is_bf16(format)) return round_to_bf16(in, n_rows, format);
  const bool small = format == ActivationFormat::kQ8B32;
  MappedBuffer& buffer = small ? q8b32_ : q8b256_;
  const auto n = static_cast<uint64_t>(n_rows);
  CHECK(n * q8_strides(format, in.cols).bytes_per_row <= buffer.size(), "%lld rows of %lld",
        static_cast<long long>(n_rows), static_cast<long long>(in.cols));
  a = lay_out_q8(format, in.cols, n_rows, buffer.data());
  a.x = in.row(0);
  a.x_stride = in.stride;
  if (!for_gemm || kernels_.make_tiles == nullptr) {
    for_rows(n_rows, in.cols,
             [&](int64_t r, int) { quantize_row(in.row(r), in.cols, r, a, format); });
    return a;
  }
  uint8_t* tiles = tiles_[small ? 0 : 1].data();
  a.tiles = {tiles, tile_height(n_rows), tile_count(n_rows)};
  const bool few = a.tiles.n_tiles < 2 * pool_.n_threads();
  if (few)
    for_rows(n_rows, in.cols,
             [&](int64_t r, int) { quantize_row(in.row(r), in.cols, r, a, format); });
  pool_.parallel_for(a.tiles.n_tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t last = few ? 0 : std::min((t + 1) * a.tiles.height, n_rows);
      for (int64_t r = t * a.tiles.height; r < last; ++r)
        quantize_row(in.row(r), in.cols, r, a, format);
      kernels_.make_tiles(a, format, n_rows, in.cols, t, t + 1, tiles);
    }
  });
  return a;
}

Activations CpuBackend::round_to_bf16(const RowsBuffer& in, int64_t n_rows,
                                      ActivationFormat format) {
  const int64_t n_parts = bf16_parts(format);
  MappedBuffer& buffer = bf16_tiles_[n_parts - 1];
  uint8_t* tiles = buffer.data();
  CHECK(static_cast<uint64_t>(bf16_tiles_bytes(n_parts, n_rows, in.cols)) <= buffer.size(),
        "%lld rows of %lld", static_cast<long long>(n_rows), static_cast<long long>(in.cols));
  round_rows(in, n_rows, n_parts, tiles);
  return bf16_activations(tiles, n_rows);
}

void CpuBackend::round_rows(const RowsBuffer& in, int64_t n_rows, int64_t n_parts, uint8_t* tiles) {
  const int64_t n_pairs = bf16_pairs(n_rows);
  for_rows(n_pairs * kBf16PairRows, in.cols, [&](int64_t r, int) {
    kernels_.round_row(r < n_rows ? in.row(r) : nullptr, in.cols, n_parts, n_pairs, r, tiles);
  });
}

Activations CpuBackend::bf16_activations(const uint8_t* tiles, int64_t n_rows) const {
  Activations a;
  a.tiles = {tiles, kBf16PairRows, bf16_pairs(n_rows)};
  return a;
}

void CpuBackend::quantize_row(const float* x, int64_t n_in, int64_t row, const Activations& a,
                              ActivationFormat format) {
  auto* q = const_cast<int8_t*>(a.q) + row * a.q_stride;
  auto* d = const_cast<float*>(a.d) + row * a.d_stride;
  if (format == ActivationFormat::kQ8B32) {
    kernels_.quantize_q8b32(x, n_in, q, d, const_cast<int32_t*>(a.sums32) + row * a.d_stride);
  } else {
    kernels_.quantize_q8b256(x, n_in, q, d, const_cast<int16_t*>(a.sums16) + row * a.sums16_stride);
  }
}

CpuBackend::ZoneTimer::ZoneTimer(CpuBackend& backend, Zone zone, const char* detail)
    : backend_(backend), zone_(zone), detail_(detail) {
  if (backend_.trace_.enabled()) start_s_ = seconds_now();
}

CpuBackend::ZoneTimer::~ZoneTimer() {
  if (!backend_.trace_.enabled()) return;
  backend_.trace_.add({zone_, static_cast<int16_t>(backend_.layer_),
                       detail_ != nullptr ? detail_ : backend_.layer_kind_, start_s_,
                       seconds_now() - start_s_});
}

}  // namespace okibi::cpu
