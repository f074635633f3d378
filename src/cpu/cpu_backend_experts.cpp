// Mixtures of experts: routing, grouping of tokens by expert, the weighted sum. The products of a
// wave of experts are in cpu_backend_expert_products.cpp.
//
// A pair is a row of the step and an expert that it wants. Pairs lie in the order of experts, rows
// ascending; that place decides where a result stands and nothing else, so a row's bits do not
// depend on who shares its experts.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/activation_rows.h"
#include "cpu/cpu_backend_impl.h"
#include "ops/experts_layout.h"

namespace okibi::cpu {
namespace {

constexpr int32_t kMaxUsed = 64;

}  // namespace

Status CpuBackend::reserve_expert_rows(RowsBuffer& buffer, int64_t n_rows, int64_t cols) {
  buffer.max_rows = n_rows;
  buffer.cols = cols;
  buffer.stride = padded_stride(cols, sizeof(float));
  return grow(buffer.memory, static_cast<uint64_t>(n_rows * buffer.stride) * 4 + kReadPast, true)
      .with_context("experts");
}

Status CpuBackend::set_experts(const ops::ExpertsConfig& c) {
  CHECK(!has_experts_ && c.max_rows > 0 && c.n_used > 0 && c.n_used <= kMaxUsed &&
            c.n_used <= c.n_experts && c.d_model > 0 && c.d_ff > 0,
        "%lld rows, %d of %d experts", static_cast<long long>(c.max_rows), c.n_used, c.n_experts);
  has_experts_ = true;
  ExpertsWork& work = experts_;
  work.config = c;
  const int64_t n_pairs = c.max_rows * c.n_used, wave = ops::experts_wave_pairs(c);
  const auto n = static_cast<size_t>(n_pairs);
  work.probability_stride = padded_stride(c.n_experts, sizeof(float));
  work.probabilities.resize(static_cast<size_t>(work.probability_stride * pool_.n_threads()));
  work.chosen.resize(n);
  work.weights.resize(n);
  work.places.resize(n);
  work.rows.resize(n);
  work.next.resize(static_cast<size_t>(c.n_experts));
  work.groups.reserve(static_cast<size_t>(c.n_experts));
  const int64_t n_groups = std::min<int64_t>(wave, c.n_experts);
  work.strips.reserve(static_cast<size_t>(wave / kTileHeight + n_groups));
  work.products.reserve(static_cast<size_t>(2 * n_groups));
  OKIBI_RETURN_IF_ERROR(reserve_expert_rows(work.gate, wave, c.d_ff));
  OKIBI_RETURN_IF_ERROR(reserve_expert_rows(work.up, wave, c.d_ff));
  OKIBI_RETURN_IF_ERROR(reserve_expert_rows(work.results, n_pairs, c.d_model));
  const int64_t widest = std::max(c.d_model, c.d_ff);
  // Address space only: memory is taken for the formats that the weights ask for.
  const auto rows = static_cast<uint64_t>(wave);
  OKIBI_RETURN_IF_ERROR(
      grow(work.gathered[0], rows * 4 * static_cast<uint64_t>(padded_stride(widest, 4)), true));
  for (const ActivationFormat f : {ActivationFormat::kQ8B32, ActivationFormat::kQ8B256}) {
    const auto i = static_cast<size_t>(f);
    OKIBI_RETURN_IF_ERROR(
        grow(work.gathered[i], rows * q8_strides(f, widest).bytes_per_row + kReadPast, true));
    if (kernels_.make_tiles == nullptr) continue;
    // No group of one has tiles.
    const int64_t n_tiles = wave / kTileHeight + std::min<int64_t>(c.n_experts, wave / 2 + 1);
    const int64_t n_bytes = ceil_div(widest, 256) * n_tiles * tile_record_bytes(f);
    OKIBI_RETURN_IF_ERROR(grow(work.tiles[i], static_cast<uint64_t>(n_bytes), true));
  }
  return ok_status();
}

// The n_used largest of p in order, the lower expert first among equals, and their weights.
void CpuBackend::choose_experts(const float* p, int64_t row, const ops::Experts& experts) {
  const int32_t n_used = experts.n_used;
  int32_t* chosen = experts_.chosen.data() + row * n_used;
  float* weights = experts_.weights.data() + row * n_used;
  int32_t n = 0;
  for (int32_t e = 0; e < experts_.config.n_experts; ++e) {
    if (n == n_used && !(p[e] > weights[n - 1])) continue;
    int32_t at = n < n_used ? n++ : n - 1;
    for (; at > 0 && p[e] > weights[at - 1]; --at) {
      chosen[at] = chosen[at - 1];
      weights[at] = weights[at - 1];
    }
    chosen[at] = e;
    weights[at] = p[e];
  }
  float sum = weights[0];
  for (int32_t i = 1; i < n_used; ++i) sum += weights[i];
  for (int32_t i = 0; i < n_used; ++i) weights[i] = weights[i] / sum * experts.scale;
}

void CpuBackend::route_experts(const RowsBuffer& router, int64_t n_rows,
                               const ops::Experts& experts) {
  for_rows(n_rows, 4 * router.cols, [&](int64_t r, int thread) {
    float* p = experts_.probabilities.data() + thread * experts_.probability_stride;
    experts_kernels_.softmax(router.row(r), router.cols, p);
    choose_experts(p, r, experts);
  });
}

void CpuBackend::group_pairs(int64_t n_rows, int32_t n_used) {
  ExpertsWork& work = experts_;
  const auto n_pairs = static_cast<size_t>(n_rows * n_used);
  std::fill(work.next.begin(), work.next.end(), 0);
  for (size_t i = 0; i < n_pairs; ++i) ++work.next[static_cast<size_t>(work.chosen[i])];
  work.groups.clear();
  int64_t first = 0;
  for (int32_t e = 0; e < work.config.n_experts; ++e) {
    int64_t& next = work.next[static_cast<size_t>(e)];
    const int64_t n = next;
    next = first;
    if (n > 0) work.groups.push_back({e, first, n, 0});
    first += n;
  }
  for (size_t i = 0; i < n_pairs; ++i) {
    const int64_t place = work.next[static_cast<size_t>(work.chosen[i])]++;
    work.places[i] = place;
    work.rows[static_cast<size_t>(place)] = static_cast<int64_t>(i) / n_used;
  }
}

void CpuBackend::add_weighted(int64_t n_rows, int32_t n_used, RowsBuffer& out) {
  for_rows(n_rows, out.cols * n_used, [&](int64_t r, int) {
    const float* terms[kMaxUsed];
    const int64_t first = r * n_used;
    for (int32_t i = 0; i < n_used; ++i) {
      terms[i] = experts_.results.row(experts_.places[static_cast<size_t>(first + i)]);
    }
    experts_kernels_.weighted_sum(terms, experts_.weights.data() + first, n_used, out.cols,
                                  out.row(r));
  });
}

}  // namespace okibi::cpu
