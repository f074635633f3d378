// Gated DeltaNet: the causal convolution and the delta rule.
#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

// Convolutions read the taps of neighbouring channels together, vectors hold those of a channel.
const float* CpuBackend::conv_taps(ops::Vector kernel, int64_t d, int64_t n_taps) {
  const std::vector<float>& from = vector(kernel);
  if (conv_taps_.size() < vectors_.size()) conv_taps_.resize(vectors_.size());
  std::vector<float>& taps = conv_taps_[static_cast<size_t>(kernel.id)];
  if (taps.size() == from.size()) return taps.data();
  taps.resize(from.size());
  for (int64_t c = 0; c < d; ++c) {
    for (int64_t j = 0; j < n_taps; ++j) {
      taps[static_cast<size_t>(j * d + c)] = from[static_cast<size_t>(c * n_taps + j)];
    }
  }
  return taps.data();
}

void CpuBackend::causal_conv(uint64_t state_offset, ops::Rows in, ops::Vector kernel,
                             ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kShortConv);
  const RowsBuffer& x = rows(in);
  const int64_t d = x.cols;
  const auto n_taps = static_cast<int64_t>(vector(kernel).size()) / d;
  CHECK(n_taps >= 1 && n_taps <= kMaxConvSources &&
            n_taps * d == static_cast<int64_t>(vector(kernel).size()) &&
            x.n_valid == plan_->n_rows && in.id != out.id,
        "kernel of %zu, rows %lld x %lld", vector(kernel).size(), static_cast<long long>(x.n_valid),
        static_cast<long long>(d));
  CHECK(state_offset + static_cast<uint64_t>((n_taps - 1) * d) <= state_config_.floats_per_slot,
        "state at %llu of %llu", static_cast<unsigned long long>(state_offset),
        static_cast<unsigned long long>(state_config_.floats_per_slot));
  RowsBuffer& y = output(out, x.n_valid, d);
  const float* taps = conv_taps(kernel, d, n_taps);
  // Channels are independent, so a unit is some channels of one sequence.
  constexpr int64_t kChannels = 512;
  const int64_t n_blocks = ceil_div(d, kChannels);
  const auto n_units = static_cast<int64_t>(plan_->sequences.size()) * n_blocks;
  const bool is_small = x.n_valid * d < 8192;
  pool_.parallel_for(n_units, is_small ? n_units : 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) {
      const ops::SequenceSpan& s = plan_->sequences[static_cast<size_t>(u / n_blocks)];
      if (s.n_rows == 0) continue;
      CausalConvArgs a;
      a.x = x.row(s.first_row);
      a.x_stride = x.stride;
      a.n_rows = s.n_rows;
      a.d = d;
      a.channel_begin = u % n_blocks * kChannels;
      a.channel_end = std::min(a.channel_begin + kChannels, d);
      a.n_taps = n_taps;
      a.taps = taps;
      a.state_in = slot(s.src_slot) + state_offset;
      a.state_out = slot(s.dst_slot) + state_offset;
      a.out = y.row(s.first_row);
      a.out_stride = y.stride;
      recurrent_kernels_.causal_conv(a);
    }
  });
}

// What all units of one delta_rule share.
struct CpuBackend::DeltaCall {
  const ops::DeltaRule& rule;
  const RowsBuffer& qkv;
  RowsBuffer& out;
  const float* keys;   // (n_key_heads, n_rows, 2 head_dim)
  const float* gates;  // (n_value_heads, n_rows, 2)
  int64_t columns;     // of the state, per unit
  int64_t n_blocks;
  bool by_key_head;  // value heads of one key head follow each other
};

void CpuBackend::check_delta(const ops::DeltaRule& rule, const RowsBuffer& qkv,
                             const RowsBuffer& alpha, const RowsBuffer& beta) {
  check_all_rows();
  const int64_t n_k = rule.n_key_heads, n_v = rule.n_value_heads, d = rule.head_dim;
  CHECK(n_k > 0 && n_v > 0 && d > 0 && d <= kMaxDeltaHeadDim && qkv.cols == (2 * n_k + n_v) * d &&
            alpha.cols == n_v && beta.cols == n_v,
        "%lld key heads, %lld value heads of %lld; qkv of %lld, alpha of %lld, beta of %lld",
        static_cast<long long>(n_k), static_cast<long long>(n_v), static_cast<long long>(d),
        static_cast<long long>(qkv.cols), static_cast<long long>(alpha.cols),
        static_cast<long long>(beta.cols));
  CHECK(qkv.n_valid == plan_->n_rows && alpha.n_valid == qkv.n_valid && beta.n_valid == qkv.n_valid,
        "%u rows, qkv has %lld, alpha %lld, beta %lld", plan_->n_rows,
        static_cast<long long>(qkv.n_valid), static_cast<long long>(alpha.n_valid),
        static_cast<long long>(beta.n_valid));
  CHECK(rule.state_offset + static_cast<uint64_t>(n_v * d * d) <= state_config_.floats_per_slot,
        "state at %llu of %llu", static_cast<unsigned long long>(rule.state_offset),
        static_cast<unsigned long long>(state_config_.floats_per_slot));
  const std::vector<float>& a = vector(rule.a);
  CHECK(static_cast<int64_t>(a.size()) == n_v &&
            static_cast<int64_t>(vector(rule.dt_bias).size()) == n_v,
        "%lld value heads, a of %zu, dt_bias of %zu", static_cast<long long>(n_v), a.size(),
        vector(rule.dt_bias).size());
  for (const float v : a) CHECK(!(v > 0.0f), "a = %g makes the state grow", static_cast<double>(v));
}

void CpuBackend::delta_rule(const ops::DeltaRule& rule, ops::Rows qkv, ops::Rows alpha,
                            ops::Rows beta, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kDelta);
  const RowsBuffer& x = rows(qkv);
  const RowsBuffer& al = rows(alpha);
  const RowsBuffer& be = rows(beta);
  check_delta(rule, x, al, be);
  CHECK(out.id != qkv.id && out.id != alpha.id && out.id != beta.id, "out %d is an input", out.id);
  const int64_t n_v = rule.n_value_heads, d = rule.head_dim;
  RowsBuffer& y = output(out, x.n_valid, n_v * d);
  const int64_t n_k = rule.n_key_heads, n = x.n_valid;
  const int64_t n_floats = max_rows_ * 2 * (n_k * d + n_v);
  const Status grown = grow(delta_prepared_, static_cast<uint64_t>(n_floats) * sizeof(float), true);
  CHECK(grown.ok(), "%s", grown.message().c_str());
  auto* keys = reinterpret_cast<float*>(delta_prepared_.data());
  float* gates = keys + n * 2 * n_k * d;
  for_rows(n, x.cols, [&](int64_t r, int) {
    recurrent_kernels_.delta_prepare({.qk = x.row(r),
                                      .alpha = al.row(r),
                                      .beta = be.row(r),
                                      .a = vector(rule.a).data(),
                                      .dt_bias = vector(rule.dt_bias).data(),
                                      .n_key_heads = n_k,
                                      .n_value_heads = n_v,
                                      .head_dim = d,
                                      .keys = keys + r * 2 * d,
                                      .key_head_stride = n * 2 * d,
                                      .gates = gates + r * 2,
                                      .gate_head_stride = n * 2});
  });
  uint32_t most_rows = 0;
  for (const ops::SequenceSpan& s : plan_->sequences) most_rows = std::max(most_rows, s.n_rows);
  // Rows one at a time stream their states, whole heads at once.
  const int64_t columns = most_rows > 1 ? std::min(d, kDeltaColumns) : d;
  const int64_t n_blocks = ceil_div(d, columns);
  const auto n_units = static_cast<int64_t>(plan_->sequences.size()) * n_v * n_blocks;
  // States are read in the order of memory; where many rows pass over them, rather the keys are.
  const bool by_key_head = most_rows > 1 && n_v % n_k == 0;
  const DeltaCall call{rule, x, y, keys, gates, columns, n_blocks, by_key_head};
  // A unit of work should be some thousand values of state.
  const int64_t grain = std::max<int64_t>(1, 32768 / (d * columns * std::max(most_rows, 1u)));
  pool_.parallel_for_shrinking(n_units, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) delta_unit(call, u, u + 1 < end);
  });
}

void CpuBackend::delta_unit(const DeltaCall& call, int64_t unit, bool has_next) {
  const ops::DeltaRule& rule = call.rule;
  const int64_t n_k = rule.n_key_heads, n_v = rule.n_value_heads, d = rule.head_dim;
  const int64_t block = unit % call.n_blocks;
  const int64_t nth = unit / call.n_blocks % n_v;
  const int64_t head = call.by_key_head ? nth % (n_v / n_k) * n_k + nth / (n_v / n_k) : nth;
  const ops::SequenceSpan& s = plan_->sequences[static_cast<size_t>(unit / call.n_blocks / n_v)];
  if (s.n_rows == 0) return;
  const int64_t n = call.qkv.n_valid;
  const uint64_t at = rule.state_offset + static_cast<uint64_t>(head * d * d);
  DeltaArgs a;
  a.n_rows = s.n_rows;
  a.head_dim = d;
  a.column_begin = block * call.columns;
  a.column_end = std::min(a.column_begin + call.columns, d);
  a.keys = call.keys + (head % n_k * n + s.first_row) * 2 * d;
  a.gates = call.gates + (head * n + s.first_row) * 2;
  a.v = call.qkv.row(s.first_row) + (2 * n_k + head) * d;
  a.v_stride = call.qkv.stride;
  a.state_in = slot(s.src_slot) + at;
  a.state_out = slot(s.dst_slot) + at;
  a.out = call.out.row(s.first_row) + head * d;
  a.out_stride = call.out.stride;
  // The head behind this one, as long as the slot has one.
  if (has_next && head + 1 < n_v) a.next_state = a.state_in + d * d;
  recurrent_kernels_.delta_rule(a);
}

}  // namespace okibi::cpu
