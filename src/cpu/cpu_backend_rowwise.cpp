// Operations on rows one by one (norms, rope, gated SiLU, gathering) and the recurrent ones with
// the state slots they advance.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::rms_norm(ops::Rows in, ops::Vector gamma, float eps, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kNorm);
  const RowsBuffer& x = rows(in);
  const std::vector<float>& g = vector(gamma);
  CHECK(static_cast<int64_t>(g.size()) == x.cols, "gamma of %zu, rows of %lld", g.size(),
        static_cast<long long>(x.cols));
  RowsBuffer& y = output(out, x.n_valid, x.cols);
  for_rows(x.n_valid, x.cols,
           [&](int64_t r, int) { kernels_.rms_norm(x.row(r), g.data(), x.cols, eps, y.row(r)); });
}

void CpuBackend::norm_heads(ops::Rows inout, ops::Vector gamma, float eps) {
  const ZoneTimer timer(*this, Zone::kNorm);
  RowsBuffer& x = rows(inout);
  const std::vector<float>& g = vector(gamma);
  const auto head_dim = static_cast<int64_t>(g.size());
  CHECK(head_dim > 0 && x.cols % head_dim == 0, "heads of %zu, rows of %lld", g.size(),
        static_cast<long long>(x.cols));
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
    float* row = x.row(r);
    for (int64_t h = 0; h < x.cols; h += head_dim) {
      kernels_.rms_norm(row + h, g.data(), head_dim, eps, row + h);
    }
  });
}

void CpuBackend::silu_mul(ops::Rows gate, ops::Rows up, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kSiluMul);
  const RowsBuffer& g = rows(gate);
  const RowsBuffer& u = rows(up);
  CHECK(g.cols == u.cols && g.n_valid == u.n_valid, "gate of %lld, up of %lld",
        static_cast<long long>(g.cols), static_cast<long long>(u.cols));
  RowsBuffer& y = output(out, g.n_valid, g.cols);
  for_rows(g.n_valid, g.cols,
           [&](int64_t r, int) { kernels_.silu_mul(g.row(r), u.row(r), g.cols, y.row(r)); });
}

void CpuBackend::gather_outputs(ops::Rows in, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kOther);
  CHECK(in.id != out.id, "gather in place");
  const RowsBuffer& x = rows(in);
  const auto n = static_cast<int64_t>(plan_->output_rows.size());
  RowsBuffer& y = output(out, n, x.cols);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t r = plan_->output_rows[static_cast<size_t>(i)];
    CHECK(r < plan_->n_rows, "output row %u of %u", r, plan_->n_rows);
    std::memcpy(y.row(i), x.row(r), static_cast<size_t>(x.cols) * sizeof(float));
  }
}

ops::Rope CpuBackend::add_rope(const ops::RopeConfig& config) {
  const int32_t half = config.n_rot / 2;
  CHECK(config.n_rot > 0 && config.n_rot % 2 == 0 && config.n_rot <= config.head_dim,
        "rope of %d values in heads of %d", config.n_rot, config.head_dim);
  CHECK(config.freq_divisors.empty() || config.freq_divisors.size() == static_cast<size_t>(half),
        "%zu divisors for %d pairs", config.freq_divisors.size(), half);
  RopeTable table;
  table.config = config;
  for (int32_t i = 0; i < half; ++i) {
    double f = std::pow(static_cast<double>(config.freq_base), -2.0 * i / config.n_rot);
    if (!config.freq_divisors.empty()) {
      f /= static_cast<double>(config.freq_divisors[static_cast<size_t>(i)]);
    }
    table.frequencies.push_back(f);
  }
  ropes_.push_back(std::move(table));
  return ops::Rope{static_cast<int32_t>(ropes_.size() - 1)};
}

void CpuBackend::RopeTable::turn(double position, float* out) const {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * frequencies[i];
    out[i] = static_cast<float>(std::cos(angle));
    out[half + i] = static_cast<float>(std::sin(angle));
  }
}

// Cosines and sines of the step's rows, computed once per step in double.
const float* CpuBackend::rope_rows(RopeTable& table) {
  const int64_t half = table.config.n_rot / 2;
  const auto n = static_cast<int64_t>(plan_->n_rows);
  if (table.ready) return table.cos_sin.data();
  if (static_cast<int64_t>(table.cos_sin.size()) < n * 2 * half) {
    table.cos_sin.resize(static_cast<size_t>(std::max(n, max_rows_) * 2 * half));
  }
  // A sine costs about as much as fifty values of other work.
  for_rows(n, half * 100, [&](int64_t r, int) {
    table.turn(plan_->positions[static_cast<size_t>(r)], table.cos_sin.data() + r * 2 * half);
  });
  table.ready = true;
  return table.cos_sin.data();
}

void CpuBackend::rope(ops::Rows inout, ops::Rope handle) {
  const ZoneTimer timer(*this, Zone::kRope);
  CHECK(handle.id >= 0 && static_cast<size_t>(handle.id) < ropes_.size(), "rope %d", handle.id);
  RopeTable& table = ropes_[static_cast<size_t>(handle.id)];
  RowsBuffer& x = rows(inout);
  const ops::RopeConfig& c = table.config;
  CHECK(x.cols % c.head_dim == 0 && x.n_valid == plan_->n_rows, "heads of %d, rows of %lld",
        c.head_dim, static_cast<long long>(x.cols));
  const float* cos_sin = rope_rows(table);
  const auto kernel =
      c.style == ops::RopeStyle::kAdjacent ? kernels_.rope_adjacent : kernels_.rope_half;
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
    kernel(x.row(r), static_cast<int32_t>(x.cols / c.head_dim), c.head_dim, c.n_rot,
           cos_sin + r * c.n_rot);
  });
}

Status CpuBackend::set_state(const ops::StateConfig& config) {
  state_config_ = config;
  slot_floats_ = align_up(config.floats_per_slot, 16);
  uint64_t n_bytes = 0;
  if (!checked_mul(slot_floats_ * sizeof(float), config.max_slots, &n_bytes)) {
    return resource_exhausted("recurrent state: slots x floats do not fit 64 bits");
  }
  return grow(state_memory_, n_bytes, /*huge=*/false).with_context("recurrent state");
}

float* CpuBackend::slot(ops::SlotId id) {
  CHECK(id < state_config_.max_slots, "slot %u of %u", id, state_config_.max_slots);
  return reinterpret_cast<float*>(state_memory_.data()) + id * slot_floats_;
}
const float* CpuBackend::slot(ops::SlotId id) const {
  return const_cast<CpuBackend*>(this)->slot(id);
}

void CpuBackend::zero_slot(ops::SlotId id) {
  std::memset(slot(id), 0, state_config_.floats_per_slot * sizeof(float));
}
void CpuBackend::copy_slot(ops::SlotId src, ops::SlotId dst) {
  std::memmove(slot(dst), slot(src), state_config_.floats_per_slot * sizeof(float));
}
void CpuBackend::download_slot(ops::SlotId id, std::span<float> out) const {
  CHECK(out.size() == state_config_.floats_per_slot, "%zu floats", out.size());
  std::memcpy(out.data(), slot(id), out.size_bytes());
}
void CpuBackend::upload_slot(ops::SlotId id, std::span<const float> in) {
  CHECK(in.size() == state_config_.floats_per_slot, "%zu floats", in.size());
  std::memcpy(slot(id), in.data(), in.size_bytes());
}

void CpuBackend::short_conv(uint64_t state_offset, ops::Rows bcx, ops::Vector kernel,
                            ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kShortConv);
  const RowsBuffer& x = rows(bcx);
  const std::vector<float>& taps = vector(kernel);
  const int64_t d = x.cols / 3;
  const auto n_taps = d == 0 ? 0 : static_cast<int64_t>(taps.size()) / d;
  CHECK(x.cols % 3 == 0 && n_taps >= 1 && n_taps <= kMaxConvTaps &&
            n_taps * d == static_cast<int64_t>(taps.size()) && x.n_valid == plan_->n_rows,
        "kernel of %zu, rows of %lld", taps.size(), static_cast<long long>(x.cols));
  CHECK(state_offset + static_cast<uint64_t>((n_taps - 1) * d) <= state_config_.floats_per_slot,
        "state at %llu", static_cast<unsigned long long>(state_offset));
  RowsBuffer& y = output(out, x.n_valid, d);
  // Channels are independent, so a unit is some channels of one sequence.
  constexpr int64_t kChannels = 256;
  const int64_t n_blocks = ceil_div(d, kChannels);
  const auto n_units = static_cast<int64_t>(plan_->sequences.size()) * n_blocks;
  const bool is_small = x.n_valid * d < 16384;
  pool_.parallel_for(n_units, is_small ? n_units : 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) {
      const ops::SequenceSpan& s = plan_->sequences[static_cast<size_t>(u / n_blocks)];
      if (s.n_rows == 0) continue;
      ShortConvArgs a;
      a.bcx = x.row(s.first_row);
      a.bcx_stride = x.stride;
      a.n_rows = static_cast<int32_t>(s.n_rows);
      a.d = static_cast<int32_t>(d);
      a.channel_begin = static_cast<int32_t>(u % n_blocks * kChannels);
      a.channel_end = static_cast<int32_t>(std::min<int64_t>(a.channel_begin + kChannels, d));
      a.n_taps = static_cast<int32_t>(n_taps);
      a.kernel = taps.data();
      a.state_in = slot(s.src_slot) + state_offset;
      a.state_out = slot(s.dst_slot) + state_offset;
      a.out = y.row(s.first_row);
      a.out_stride = y.stride;
      kernels_.short_conv(a);
    }
  });
}

}  // namespace okibi::cpu
