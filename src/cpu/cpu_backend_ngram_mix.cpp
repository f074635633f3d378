// Mixing gathered n-grams into the residual streams.
#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::check_ngram_mix(const ops::NgramMix& mix, const RowsBuffer& key,
                                 const RowsBuffer& value, const RowsBuffer& inout) {
  check_all_rows();
  const int64_t d = value.cols, all = mix.n_streams * d;
  CHECK(mix.n_streams > 0 && key.cols == all && inout.cols == all && key.n_valid == plan_->n_rows &&
            value.n_valid == plan_->n_rows && inout.n_valid == plan_->n_rows,
        "%d streams of %lld, %u rows; key %lld x %lld, value has %lld rows, inout %lld x %lld",
        mix.n_streams, static_cast<long long>(d), plan_->n_rows,
        static_cast<long long>(key.n_valid), static_cast<long long>(key.cols),
        static_cast<long long>(value.n_valid), static_cast<long long>(inout.n_valid),
        static_cast<long long>(inout.cols));
  CHECK(mix.n_taps >= 1 && mix.n_taps <= kMaxConvSources && mix.dilation >= 1 &&
            static_cast<int64_t>(vector(mix.kernel).size()) == all * mix.n_taps,
        "%d taps %d apart, kernel of %zu for %lld channels", mix.n_taps, mix.dilation,
        vector(mix.kernel).size(), static_cast<long long>(all));
  for (const ops::Vector gamma : {mix.key_norm, mix.query_norm, mix.conv_norm}) {
    CHECK(static_cast<int64_t>(vector(gamma).size()) == all, "gamma of %zu for %lld channels",
          vector(gamma).size(), static_cast<long long>(all));
  }
  const auto n = static_cast<uint64_t>((mix.n_taps - 1) * mix.dilation * all);
  CHECK(mix.state_offset + n <= state_config_.floats_per_slot, "state at %llu of %llu",
        static_cast<unsigned long long>(mix.state_offset),
        static_cast<unsigned long long>(state_config_.floats_per_slot));
}

void CpuBackend::ngram_mix(const ops::NgramMix& mix, ops::Rows key, ops::Rows value,
                           ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kNgram);
  RowsBuffer& k = rows(key);
  const RowsBuffer& v = rows(value);
  RowsBuffer& x = rows(inout);
  CHECK(key.id != inout.id && value.id != inout.id && key.id != value.id,
        "key %d, value %d, inout %d", key.id, value.id, inout.id);
  check_ngram_mix(mix, k, v, x);
  const int64_t n_streams = mix.n_streams, d = v.cols;
  if (static_cast<int64_t>(ngram_gates_.size()) < x.n_valid * n_streams) {
    ngram_gates_.resize(static_cast<size_t>(max_rows_ * n_streams));
  }
  // First the gates and nn (in key's place) of every row and stream, then what looks back.
  for_rows(x.n_valid * n_streams, d, [&](int64_t u, int) {
    const int64_t r = u / n_streams, at = u % n_streams * d;
    ngram_gates_[static_cast<size_t>(u)] =
        recurrent_kernels_.ngram_gate({.key = k.row(r) + at,
                                       .value = v.row(r),
                                       .residual = x.row(r) + at,
                                       .key_norm = vector(mix.key_norm).data() + at,
                                       .query_norm = vector(mix.query_norm).data() + at,
                                       .conv_norm = vector(mix.conv_norm).data() + at,
                                       .d = d,
                                       .eps = mix.eps});
  });
  const float* taps = conv_taps(mix.kernel, n_streams * d, mix.n_taps);
  constexpr int64_t kChannels = 512;
  const int64_t n_blocks = ceil_div(d, kChannels);
  const auto n_units = static_cast<int64_t>(plan_->sequences.size()) * n_streams * n_blocks;
  const bool is_small = x.n_valid * x.cols < 8192;
  pool_.parallel_for(n_units, is_small ? n_units : 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t block = u % n_blocks, stream = u / n_blocks % n_streams;
      const ops::SequenceSpan& s = plan_->sequences[static_cast<size_t>(u / n_blocks / n_streams)];
      if (s.n_rows == 0) continue;
      NgramConvArgs a;
      a.conv.x = k.row(s.first_row);
      a.conv.x_stride = k.stride;
      a.conv.n_rows = s.n_rows;
      a.conv.d = n_streams * d;
      a.conv.channel_begin = stream * d + block * kChannels;
      a.conv.channel_end = stream * d + std::min((block + 1) * kChannels, d);
      a.conv.n_taps = mix.n_taps;
      a.conv.dilation = mix.dilation;
      a.conv.taps = taps;
      a.conv.state_in = slot(s.src_slot) + mix.state_offset;
      a.conv.state_out = slot(s.dst_slot) + mix.state_offset;
      a.conv.out = x.row(s.first_row);
      a.conv.out_stride = x.stride;
      a.value = v.row(s.first_row);
      a.value_stride = v.stride;
      a.stream_begin = stream * d;
      a.gates = ngram_gates_.data() + s.first_row * n_streams + stream;
      a.gate_stride = n_streams;
      recurrent_kernels_.ngram_conv(a);
    }
  });
}

}  // namespace okibi::cpu
