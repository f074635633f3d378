// The products of a step's experts, a wave of experts at a time: inputs gathered in the order of
// experts, gate and up, their activation, down. Each of the four is one hand-over to the threads at
// most; with few rows the first and the third run inline.
//
// A group's rows lie one after another from its place on, and every kernel gives a row the same
// bits in any group, so which rows share an expert does not matter.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/activation_rows.h"
#include "cpu/cpu_backend_impl.h"
#include "ops/experts_layout.h"

namespace okibi::cpu {
namespace {

// From here on computing decides, not reading.
constexpr int64_t kManyRows = 32;
// What the walks of gemm keep together.
constexpr int64_t kGemmPanels = 8;
// Copying or converting fewer values than this costs less than a hand-over.
constexpr int64_t kInlineValues = 16384;

constexpr ActivationFormat kFormats[] = {ActivationFormat::kF32, ActivationFormat::kQ8B32,
                                         ActivationFormat::kQ8B256};

}  // namespace

struct CpuBackend::ExpertWave {
  std::span<ExpertGroup> groups;
  int64_t first, n_pairs;  // places
  const PackedWeight *gate, *up, *down;
  // By format: the step's rows as they came, the wave's in the order of places.
  Activations inputs[kNActivationFormats], rows[kNActivationFormats];
};

Activations CpuBackend::lay_out_wave(ActivationFormat format, int64_t n_in, int64_t n_rows) {
  uint8_t* data = experts_.gathered[static_cast<size_t>(format)].data();
  if (format != ActivationFormat::kF32) return lay_out_q8(format, n_in, n_rows, data);
  Activations a;
  a.x = reinterpret_cast<const float*>(data);
  a.x_stride = padded_stride(n_in, sizeof(float));
  return a;
}

void CpuBackend::copy_activations(const Activations& from, int64_t from_row, const Activations& to,
                                  int64_t to_row, int64_t n_in) {
  const Activations src = rows_from(from, from_row), dst = rows_from(to, to_row);
  const auto copy = [](const auto* p, const auto* q, int64_t n) {
    std::memcpy(const_cast<void*>(static_cast<const void*>(q)), p,
                static_cast<size_t>(n) * sizeof(*p));
  };
  if (dst.q == nullptr) return copy(src.x, dst.x, n_in);
  copy(src.q, dst.q, dst.q_stride);
  copy(src.d, dst.d, dst.d_stride);
  if (dst.sums32 != nullptr) copy(src.sums32, dst.sums32, dst.d_stride);
  if (dst.sums16 != nullptr) copy(src.sums16, dst.sums16, dst.sums16_stride);
}

// The rows of a group among those of a wave, with the place of its tiles.
Activations CpuBackend::group_rows(const ExpertGroup& group, const Activations& wave_rows,
                                   ActivationFormat format, int64_t n_in, int64_t first_place) {
  Activations a = rows_from(wave_rows, group.first - first_place);
  if (kernels_.make_tiles != nullptr && format != ActivationFormat::kF32 && group.n_pairs > 1) {
    const int64_t n_tiles = tile_count(group.n_pairs);
    uint8_t* data = experts_.tiles[static_cast<size_t>(format)].data();
    data += group.first_tile * ceil_div(n_in, 256) * tile_record_bytes(format);
    a.tiles = {data, tile_height(group.n_pairs), n_tiles};
  }
  return a;
}

void CpuBackend::tile_strip(const ExpertStrip& strip, Activations wave_rows,
                            ActivationFormat format, int64_t n_in, int64_t first_place) {
  const ExpertGroup& group = experts_.groups[strip.group];
  const Activations a = group_rows(group, wave_rows, format, n_in, first_place);
  if (a.tiles.data == nullptr) return;
  kernels_.make_tiles(a, format, group.n_pairs, n_in, strip.tile, strip.tile + 1,
                      const_cast<uint8_t*>(a.tiles.data));
}

// Quantised rows of the step to where the groups want them. A group of one reads its row where it
// is.
void CpuBackend::gather_inputs(ExpertWave& wave) {
  const int64_t n_in = experts_.config.d_model;
  bool wanted[kNActivationFormats] = {}, tiled[kNActivationFormats] = {};
  int32_t min_rows[kNActivationFormats] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
  for (const PackedWeight* w : {wave.gate, wave.up}) {
    const auto f = static_cast<size_t>(w->kernels->activation);
    wanted[f] = true;
    tiled[f] = w->kernels->activation != ActivationFormat::kF32;
    min_rows[f] = std::min(min_rows[f], w->kernels->gemm_min_rows);
    wave.rows[f] = lay_out_wave(w->kernels->activation, n_in, wave.n_pairs);
  }
  if (wave.n_pairs == static_cast<int64_t>(wave.groups.size())) return;
  const auto gather = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const ExpertStrip& strip = experts_.strips[static_cast<size_t>(i)];
      const ExpertGroup& group = experts_.groups[strip.group];
      if (group.n_pairs == 1) continue;
      for (const ActivationFormat format : kFormats) {
        const auto f = static_cast<size_t>(format);
        if (!wanted[f]) continue;
        for (int64_t r = strip.first; r < strip.first + strip.n_rows; ++r) {
          const int64_t place = group.first + r;
          copy_activations(wave.inputs[f], experts_.rows[static_cast<size_t>(place)], wave.rows[f],
                           place - wave.first, n_in);
        }
        if (tiled[f] && group.n_pairs >= min_rows[f]) {
          tile_strip(strip, wave.rows[f], format, n_in, wave.first);
        }
      }
    }
  };
  const auto n_strips = static_cast<int64_t>(experts_.strips.size());
  pool_.parallel_for(n_strips, wave.n_pairs * n_in < kInlineValues ? n_strips : 1, gather);
}

// gate = silu(gate) * up, and that in the format of down.
void CpuBackend::finish_hidden(ExpertWave& wave) {
  const int64_t d_ff = experts_.config.d_ff;
  const LinearKernels& down = *wave.down->kernels;
  const ActivationFormat format = down.activation;
  const bool is_float = format == ActivationFormat::kF32;
  RowsBuffer &gate = experts_.gate, &up = experts_.up;
  Activations& hidden = wave.rows[static_cast<size_t>(format)];
  if (is_float) {
    hidden = {};
    hidden.x = gate.row(0);
    hidden.x_stride = gate.stride;
  } else {
    hidden = lay_out_wave(format, d_ff, wave.n_pairs);
  }
  const auto finish = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const ExpertStrip& strip = experts_.strips[static_cast<size_t>(i)];
      const ExpertGroup& group = experts_.groups[strip.group];
      const int64_t first = group.first - wave.first + strip.first;
      for (int64_t r = first; r < first + strip.n_rows; ++r) {
        kernels_.silu_mul(gate.row(r), up.row(r), d_ff, gate.row(r));
        if (!is_float) quantize_row(gate.row(r), d_ff, r, hidden, format);
      }
      if (uses_gemm(down, group.n_pairs)) tile_strip(strip, hidden, format, d_ff, wave.first);
    }
  };
  const auto n_strips = static_cast<int64_t>(experts_.strips.size());
  pool_.parallel_for(n_strips, wave.n_pairs * d_ff < kInlineValues ? n_strips : 1, finish);
}

// The panels of all products in one list.
void CpuBackend::run_expert_products() {
  const std::vector<ExpertProduct>& products = experts_.products;
  int64_t n_panels = 0, n_bytes = 0, most_rows = 1;
  for (ExpertProduct& p : experts_.products) {
    p.first_panel = n_panels;
    n_panels += p.product.weight->n_panels;
    n_bytes += p.product.weight->matrix_bytes();
    most_rows = std::max(most_rows, p.n_rows);
  }
  const auto run_range = [&](int64_t begin, int64_t end, int thread) {
    const auto behind = std::upper_bound(
        products.begin(), products.end(), begin,
        [](int64_t panel, const ExpertProduct& p) { return panel < p.first_panel; });
    for (auto p = behind - 1; p != products.end() && p->first_panel < end; ++p) {
      run_product_range(p->product, std::max(begin - p->first_panel, int64_t{0}),
                        std::min(end - p->first_panel, p->product.weight->n_panels), 0, p->n_rows,
                        p->n_rows, /*accumulate=*/false, thread);
    }
  };
  if (most_rows < kManyRows) {
    const int64_t grain = std::max<int64_t>(1, kMinRangeBytes / most_rows * n_panels / n_bytes);
    pool_.parallel_for_shrinking(n_panels, grain, run_range);
  } else {
    // Groups differ: a long range could hold most of the work.
    pool_.parallel_for(n_panels, kGemmPanels, run_range);
  }
}

void CpuBackend::run_wave(ExpertWave& wave) {
  ExpertsWork& work = experts_;
  work.strips.clear();
  int64_t n_tiles = 0;
  for (ExpertGroup& group : wave.groups) {
    const int64_t n = tile_count(group.n_pairs), height = tile_height(group.n_pairs);
    group.first_tile = n_tiles;
    if (group.n_pairs > 1) n_tiles += n;
    for (int64_t t = 0; t < n; ++t) {
      const int64_t first = std::min(t * height, group.n_pairs);
      work.strips.push_back({static_cast<uint32_t>(&group - work.groups.data()), first,
                             std::min(height, group.n_pairs - first), t});
    }
  }
  gather_inputs(wave);
  work.products.clear();
  for (const ExpertGroup& group : wave.groups) {
    const int64_t place = group.first - wave.first;
    for (const PackedWeight* w : {wave.gate, wave.up}) {
      const ActivationFormat format = w->kernels->activation;
      const auto f = static_cast<size_t>(format);
      const Activations input =
          group.n_pairs == 1
              ? rows_from(wave.inputs[f], work.rows[static_cast<size_t>(group.first)])
              : group_rows(group, wave.rows[f], format, work.config.d_model, wave.first);
      RowsBuffer& out = w == wave.gate ? work.gate : work.up;
      work.products.push_back(
          {{w, input, out.row(place), out.stride, {}, group.expert}, group.n_pairs, 0});
    }
  }
  run_expert_products();
  finish_hidden(wave);
  work.products.clear();
  const ActivationFormat format = wave.down->kernels->activation;
  for (const ExpertGroup& group : wave.groups) {
    const Activations input = group_rows(group, wave.rows[static_cast<size_t>(format)], format,
                                         work.config.d_ff, wave.first);
    work.products.push_back(
        {{wave.down, input, work.results.row(group.first), work.results.stride, {}, group.expert},
         group.n_pairs,
         0});
  }
  run_expert_products();
}

void CpuBackend::moe(ops::Rows in, ops::Rows router, const ops::Experts& experts, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kExperts);
  ExpertsWork& work = experts_;
  const ops::ExpertsConfig& c = work.config;
  const RowsBuffer &x = rows(in), &scores = rows(router);
  const int64_t n = x.n_valid;
  CHECK(has_experts_ && n <= c.max_rows && experts.n_used > 0 && experts.n_used <= c.n_used,
        "%lld rows of %d experts, memory for %lld of %d", static_cast<long long>(n), experts.n_used,
        static_cast<long long>(c.max_rows), c.n_used);
  CHECK(scores.cols == c.n_experts && scores.n_valid == n && x.cols == c.d_model && in.id != out.id,
        "router of %lld, %lld rows for %lld", static_cast<long long>(scores.cols),
        static_cast<long long>(scores.n_valid), static_cast<long long>(n));
  ExpertWave wave = {};
  wave.gate = &weight(experts.gate);
  wave.up = &weight(experts.up);
  wave.down = &weight(experts.down);
  for (const PackedWeight* w : {wave.gate, wave.up, wave.down}) {
    const int64_t n_in = w == wave.down ? c.d_ff : c.d_model;
    const int64_t n_out = w == wave.down ? c.d_model : c.d_ff;
    CHECK(w->n_matrices == c.n_experts && w->matrix.n_in == n_in && w->matrix.n_out == n_out,
          "%s: expected %d x (%lld, %lld), found %lld x (%lld, %lld)", w->name.c_str(), c.n_experts,
          static_cast<long long>(n_in), static_cast<long long>(n_out),
          static_cast<long long>(w->n_matrices), static_cast<long long>(w->matrix.n_in),
          static_cast<long long>(w->matrix.n_out));
  }
  RowsBuffer& y = output(out, n, c.d_model);
  if (n == 0) return;
  route_experts(scores, n, experts);
  group_pairs(n, experts.n_used);
  for (const PackedWeight* w : {wave.gate, wave.up}) {
    Activations& input = wave.inputs[static_cast<size_t>(w->kernels->activation)];
    if (input.x == nullptr) input = quantize(x, n, w->kernels->activation, /*for_gemm=*/false);
  }
  const int64_t most = ops::experts_wave_pairs(c);
  for (size_t begin = 0, end = 0; begin < work.groups.size(); begin = end) {
    wave.first = work.groups[begin].first;
    wave.n_pairs = 0;
    while (end < work.groups.size() && wave.n_pairs + work.groups[end].n_pairs <= most) {
      wave.n_pairs += work.groups[end++].n_pairs;
    }
    wave.groups = std::span(work.groups).subspan(begin, end - begin);
    run_wave(wave);
  }
  add_weighted(n, experts.n_used, y);
}

}  // namespace okibi::cpu
