// Residual streams and gates: elementwise operations on rows.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {
namespace {

// A row of all streams is as much as a thread should get at least, so one row is split by columns.
constexpr int64_t kColumns = 640;

}  // namespace

void CpuBackend::rms_norm_groups(ops::Rows in, ops::Vector gamma, int32_t n_groups, float eps,
                                 ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kNorm);
  const RowsBuffer& x = rows(in);
  const std::vector<float>& g = vector(gamma);
  CHECK(static_cast<int64_t>(g.size()) == x.cols && n_groups > 0 && x.cols % n_groups == 0,
        "gamma of %zu, rows of %lld, %d groups", g.size(), static_cast<long long>(x.cols),
        n_groups);
  RowsBuffer& y = output(out, x.n_valid, x.cols);
  const int64_t d = x.cols / n_groups;
  if (x.n_valid > 1) {
    for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
      stream_kernels_.norm_groups(x.row(r), g.data(), n_groups, d, eps, y.row(r));
    });
    return;
  }
  for_rows(x.n_valid * n_groups, d, [&](int64_t group, int) {
    const int64_t at = group * d;
    stream_kernels_.norm_groups(x.row(0) + at, g.data() + at, 1, d, eps, y.row(0) + at);
  });
}

void CpuBackend::spread_streams(ops::Rows in, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kStreams);
  const RowsBuffer& x = rows(in);
  const int64_t cols = rows(out).cols, d = x.cols;
  CHECK(in.id != out.id && cols % d == 0, "rows of %lld spread over %lld",
        static_cast<long long>(d), static_cast<long long>(cols));
  RowsBuffer& y = output(out, x.n_valid, cols);
  for_rows(x.n_valid, cols, [&](int64_t r, int) {
    for (int64_t c = 0; c < cols; c += d) {
      std::memcpy(y.row(r) + c, x.row(r), static_cast<size_t>(d) * sizeof(float));
    }
  });
}

void CpuBackend::silu(ops::Rows inout, float scale) {
  const ZoneTimer timer(*this, Zone::kStreams);
  RowsBuffer& x = rows(inout);
  for_rows(x.n_valid, x.cols,
           [&](int64_t r, int) { stream_kernels_.silu(x.row(r), x.cols, scale); });
}

void CpuBackend::mix_streams(ops::Rows normed, ops::Rows mix, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kStreams);
  const RowsBuffer& x = rows(normed);
  const RowsBuffer& m = rows(mix);
  const int64_t d = rows(out).cols, n_streams = x.cols / d;
  CHECK(n_streams >= 1 && x.cols % d == 0 && m.cols == x.cols && m.n_valid == x.n_valid &&
            out.id != normed.id && out.id != mix.id,
        "normed %lld x %lld, mix %lld x %lld, out of %lld", static_cast<long long>(x.n_valid),
        static_cast<long long>(x.cols), static_cast<long long>(m.n_valid),
        static_cast<long long>(m.cols), static_cast<long long>(d));
  RowsBuffer& y = output(out, x.n_valid, d);
  const int64_t n_blocks = ceil_div(d, kColumns);
  for_rows(x.n_valid * n_blocks, n_streams * std::min(d, kColumns), [&](int64_t u, int) {
    const int64_t r = u / n_blocks, begin = u % n_blocks * kColumns;
    stream_kernels_.mix(x.row(r), m.row(r), n_streams, d, begin, std::min(begin + kColumns, d),
                        y.row(r));
  });
}

void CpuBackend::inject_streams(ops::Rows y, ops::Rows strength, ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kStreams);
  const RowsBuffer& in = rows(y);
  const RowsBuffer& s = rows(strength);
  RowsBuffer& x = rows(inout);
  const int64_t d = in.cols, n_streams = s.cols;
  CHECK(n_streams >= 1 && n_streams <= kMaxStreams && x.cols == n_streams * d &&
            in.n_valid == x.n_valid && s.n_valid == x.n_valid && y.id != inout.id &&
            strength.id != inout.id,
        "%lld x %lld injected by %lld strengths into %lld x %lld",
        static_cast<long long>(in.n_valid), static_cast<long long>(d),
        static_cast<long long>(n_streams), static_cast<long long>(x.n_valid),
        static_cast<long long>(x.cols));
  const int64_t n_blocks = ceil_div(d, kColumns);
  for_rows(x.n_valid * n_blocks, n_streams * std::min(d, kColumns), [&](int64_t u, int) {
    const int64_t r = u / n_blocks, begin = u % n_blocks * kColumns;
    stream_kernels_.inject(in.row(r), s.row(r), n_streams, d, begin, std::min(begin + kColumns, d),
                           x.row(r));
  });
}

void CpuBackend::sigmoid_mul(ops::Rows gate, ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kStreams);
  const RowsBuffer& g = rows(gate);
  RowsBuffer& x = rows(inout);
  CHECK(g.cols == x.cols && g.n_valid == x.n_valid, "gate %lld x %lld, rows %lld x %lld",
        static_cast<long long>(g.n_valid), static_cast<long long>(g.cols),
        static_cast<long long>(x.n_valid), static_cast<long long>(x.cols));
  for_rows(x.n_valid, x.cols,
           [&](int64_t r, int) { stream_kernels_.sigmoid_mul(g.row(r), x.cols, x.row(r)); });
}

void CpuBackend::gated_norm(ops::Rows gate, ops::GateKind kind, ops::Vector gamma, float eps,
                            ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kNorm);
  const RowsBuffer& g = rows(gate);
  const std::vector<float>& w = vector(gamma);
  RowsBuffer& x = rows(inout);
  const auto head_dim = static_cast<int64_t>(w.size());
  CHECK(head_dim > 0 && x.cols % head_dim == 0 && g.cols == x.cols && g.n_valid == x.n_valid,
        "heads of %zu, gate %lld x %lld, rows %lld x %lld", w.size(),
        static_cast<long long>(g.n_valid), static_cast<long long>(g.cols),
        static_cast<long long>(x.n_valid), static_cast<long long>(x.cols));
  const bool is_silu = kind == ops::GateKind::kSilu;
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
    for (int64_t h = 0; h < x.cols; h += head_dim) {
      stream_kernels_.gated_norm(g.row(r) + h, is_silu, w.data(), head_dim, eps, x.row(r) + h);
    }
  });
}

void CpuBackend::add_gated(ops::Rows in, ops::Rows gate, ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kStreams);
  const RowsBuffer& y = rows(in);
  const RowsBuffer& g = rows(gate);
  RowsBuffer& x = rows(inout);
  CHECK(y.cols == x.cols && y.n_valid == x.n_valid && g.n_valid == x.n_valid && in.id != inout.id,
        "%lld x %lld, %lld gates, rows %lld x %lld", static_cast<long long>(y.n_valid),
        static_cast<long long>(y.cols), static_cast<long long>(g.n_valid),
        static_cast<long long>(x.n_valid), static_cast<long long>(x.cols));
  for_rows(x.n_valid, x.cols, [&](int64_t r, int) {
    stream_kernels_.add_gated(y.row(r), g.row(r)[0], x.cols, x.row(r));
  });
}

}  // namespace okibi::cpu
