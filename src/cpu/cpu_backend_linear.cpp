// Products: which kernel, which panels and rows each thread takes, token rows and label logits.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/activation_rows.h"
#include "cpu/bf16_tiles.h"
#include "cpu/cpu_backend_impl.h"
#include "tensor/dequantize.h"

namespace okibi::cpu {
namespace {

// Ranges per thread when rows are cut as well.
constexpr int64_t kRangesPerThread = 8;
// A range of a large batch is not cut below this many rows: each cut unpacks the panel again.
constexpr int64_t kMinRowsPerRange = 32;
// A cut of rows for bfloat16 products has at least this many pairs of tiles.
constexpr int64_t kMinPairsPerCut = 8;
// As many panels as those products take at a time.
constexpr int64_t kBf16PanelsPerRange = 24;
// The most matrices that share an input: q, k, v, and room.
constexpr size_t kMaxProducts = 8;

}  // namespace

void CpuBackend::check_single(const PackedWeight& w) {
  CHECK(w.n_matrices == 1, "%s: expected one matrix, found %lld", w.name.c_str(),
        static_cast<long long>(w.n_matrices));
}

void CpuBackend::run_product_range(const Product& p, int64_t panel_begin, int64_t panel_end,
                                   int64_t row_begin, int64_t row_end, int64_t n_rows,
                                   bool accumulate, int thread) {
  const LinearKernels& k = *p.weight->kernels;
  ProductArgs args;
  args.w = p.weight->matrix;
  args.w.data += p.matrix * p.weight->matrix_bytes();
  args.a = p.input;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.row_begin = row_begin;
  args.row_end = row_end;
  args.out = p.out;
  args.out_stride = p.out_stride;
  args.accumulate = accumulate;
  args.rounded = p.rounded;
  args.scratch = linear_scratch(thread);
  (uses_gemm(k, n_rows) ? k.gemm : k.gemv)(args);
}

// The panels of all products in one list, so that small matrices (k, v beside q) share one
// hand-over. When panels are few and rows many, the rows are cut too.
void CpuBackend::run_products(std::span<const Product> products, int64_t n_rows, bool accumulate) {
  if (n_rows == 0) return;
  int64_t n_panels = 0, n_bytes = 0;
  for (const Product& p : products) {
    n_panels += p.weight->n_panels;
    n_bytes += p.weight->n_panels * p.weight->matrix.panel_bytes;
  }
  const int64_t n_ranges = kRangesPerThread * pool_.n_threads();
  int64_t n_row_ranges = 1;
  if (pool_.n_threads() > 1 && n_panels < n_ranges / 2) {
    n_row_ranges = std::clamp<int64_t>(n_rows / kMinRowsPerRange, 1, ceil_div(n_ranges, n_panels));
  }
  // Whole tiles, for the levels whose activations lie in tiles.
  const int64_t height = std::max(products[0].input.tiles.height, int64_t{1});
  const int64_t rows_per_range = ceil_div(ceil_div(n_rows, n_row_ranges), height) * height;
  // Few rows: reading decides. Many rows: kernels take panels in pairs.
  int64_t grain = n_rows < kMinRowsPerRange
                      ? std::max<int64_t>(1, kMinRangeBytes / n_rows * n_panels / n_bytes)
                      : 2;
  if (is_bf16(products[0].weight->kernels->activation)) {
    run_bf16_products(products, n_rows, n_panels, accumulate);
    return;
  }
  const auto run_range = [&](int64_t begin, int64_t end, int thread) {
    int64_t first = 0;  // in units of (panel, row range), row ranges outermost inside a matrix
    for (const Product& p : products) {
      for (int64_t r = 0; r < n_row_ranges; ++r, first += p.weight->n_panels) {
        const int64_t panel_begin = std::max(begin - first, int64_t{0});
        const int64_t panel_end = std::min(end - first, p.weight->n_panels);
        const int64_t row_begin = r * rows_per_range;
        const int64_t row_end = std::min(row_begin + rows_per_range, n_rows);
        if (panel_begin >= panel_end || row_begin >= row_end) continue;
        run_product_range(p, panel_begin, panel_end, row_begin, row_end, n_rows, accumulate,
                          thread);
      }
    }
  };
  pool_.parallel_for_shrinking(n_panels * n_row_ranges, grain, run_range);
}

// Rows are cut first, so that a thread meets the rows that it wrote; every cut reads all weights,
// so few rows are not cut. Then panels, which lie in one list as above.
void CpuBackend::run_bf16_products(std::span<const Product> products, int64_t n_rows,
                                   int64_t n_panels, bool accumulate) {
  const int64_t n_pairs = bf16_pairs(n_rows), n_threads = pool_.n_threads();
  const int64_t n_cuts = std::clamp<int64_t>(n_pairs / kMinPairsPerCut, 1, n_threads);
  const int64_t least = ceil_div(n_threads, n_cuts);
  const int64_t n_ranges =
      std::min(ceil_div(ceil_div(n_panels, kBf16PanelsPerRange), least) * least, n_panels);
  const auto run_unit = [&](int64_t unit, int thread) {
    const int64_t cut = unit / n_ranges, range = unit % n_ranges;
    const int64_t row_begin = n_pairs * cut / n_cuts * kBf16PairRows;
    const int64_t row_end = std::min(n_pairs * (cut + 1) / n_cuts * kBf16PairRows, n_rows);
    int64_t begin = n_panels * range / n_ranges, end = n_panels * (range + 1) / n_ranges;
    for (const Product& p : products) {
      const int64_t n = p.weight->n_panels;
      const int64_t panel_begin = std::max(begin, int64_t{0}), panel_end = std::min(end, n);
      begin -= n;
      end -= n;
      if (panel_begin >= panel_end) continue;
      run_product_range(p, panel_begin, panel_end, row_begin, row_end, n_rows, accumulate, thread);
    }
  };
  pool_.parallel_for_at_home(n_cuts * n_ranges, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) run_unit(unit, thread);
  });
}

void CpuBackend::project(ops::Rows in, std::span<const ops::Weight> weights,
                         std::span<const ops::Rows> outs) {
  CHECK(!weights.empty() && weights.size() == outs.size() && weights.size() <= kMaxProducts,
        "%zu weights, %zu outputs", weights.size(), outs.size());
  const LinearKernels& first = *weight(weights[0]).kernels;
  const RowsBuffer& input = any_rows(in);
  const int64_t n = input.n_valid;
  const ZoneTimer timer(*this, Zone::kLinear,
                        uses_gemm(first, n) ? first.gemm_name : first.gemv_name);
  Activations formats[kNActivationFormats];
  bool ready[kNActivationFormats] = {};
  Product products[kMaxProducts];
  for (size_t i = 0; i < weights.size(); ++i) {
    const PackedWeight& w = weight(weights[i]);
    CHECK(w.matrix.n_in == input.cols && outs[i].id != in.id, "%s: %lld inputs, rows have %lld",
          w.name.c_str(), static_cast<long long>(w.matrix.n_in),
          static_cast<long long>(input.cols));
    const auto f = static_cast<size_t>(w.kernels->activation);
    if (!ready[f]) formats[f] = quantize(input, n, w.kernels->activation, uses_gemm(*w.kernels, n));
    ready[f] = true;
    RowsBuffer& out = output(outs[i], n, w.matrix.n_out);
    check_single(w);
    CHECK(!out.is_rounded, "%s: writes rounded rows", w.name.c_str());
    products[i] = {&w, formats[f], out.row(0), out.stride};
  }
  run_products({products, weights.size()}, n, /*accumulate=*/false);
}

void CpuBackend::project_add(ops::Rows in, ops::Weight wh, ops::Rows inout) {
  const PackedWeight& w = weight(wh);
  const RowsBuffer& input = any_rows(in);
  const int64_t n = input.n_valid;
  CHECK(w.matrix.n_in == input.cols && in.id != inout.id, "%s: %lld inputs, rows have %lld",
        w.name.c_str(), static_cast<long long>(w.matrix.n_in), static_cast<long long>(input.cols));
  const ZoneTimer timer(*this, Zone::kLinear,
                        uses_gemm(*w.kernels, n) ? w.kernels->gemm_name : w.kernels->gemv_name);
  check_single(w);
  RowsBuffer& out = output(inout, n, w.matrix.n_out);
  const Product product{&w, quantize(input, n, w.kernels->activation, uses_gemm(*w.kernels, n)),
                        out.row(0), out.stride};
  run_products({&product, 1}, n, /*accumulate=*/true);
}

void CpuBackend::embed(ops::Weight table, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kEmbed);
  check_all_rows();
  const PackedWeight& w = weight(table);
  CHECK(w.kernels->unpack != nullptr, "%s: layout %s cannot be read back", w.name.c_str(),
        w.kernels->layout);
  check_single(w);
  RowsBuffer& buffer = output(out, plan_->n_rows, w.matrix.n_in);
  const int64_t n = w.matrix.n_in;
  for_rows(plan_->n_rows, n, [&](int64_t r, int thread) {
    const int32_t token = plan_->tokens[static_cast<size_t>(r)];
    CHECK(token >= 0 && token < w.matrix.n_out, "token %d of %lld", token,
          static_cast<long long>(w.matrix.n_out));
    const int32_t panel_rows = w.kernels->panel_rows;
    uint8_t* file_row = linear_scratch(thread);
    w.kernels->unpack(w.matrix.data + token / panel_rows * w.matrix.panel_bytes, n,
                      token % panel_rows, file_row);
    float* y = buffer.row(r);
    dequantize_row(w.type, file_row, n, y);
    if (w.matrix.scale != 1.0f) {
      for (int64_t i = 0; i < n; ++i) y[i] *= w.matrix.scale;
    }
  });
}

void CpuBackend::logits(ops::Rows in, ops::Weight wh, ops::Rows out) {
  const PackedWeight& w = weight(wh);
  const RowsBuffer& input = rows(in);
  const int64_t n = input.n_valid;
  CHECK(n == static_cast<int64_t>(plan_->output_rows.size()), "%lld gathered rows, %zu outputs",
        static_cast<long long>(n), plan_->output_rows.size());
  CHECK(w.matrix.n_in == input.cols && in.id != out.id, "%s: %lld inputs, rows have %lld",
        w.name.c_str(), static_cast<long long>(w.matrix.n_in), static_cast<long long>(input.cols));
  const ZoneTimer timer(*this, Zone::kOutput,
                        uses_gemm(*w.kernels, n) ? w.kernels->gemm_name : w.kernels->gemv_name);
  check_single(w);
  RowsBuffer& buffer = output(out, n, rows(out).cols);
  if (!plan_->label_begin.empty()) return label_logits(input, w, buffer);
  CHECK(buffer.cols == w.matrix.n_out, "%s: %lld outputs, rows have %lld", w.name.c_str(),
        static_cast<long long>(w.matrix.n_out), static_cast<long long>(buffer.cols));
  const Product product{&w, quantize(input, n, w.kernels->activation, uses_gemm(*w.kernels, n)),
                        buffer.row(0), buffer.stride};
  run_products({&product, 1}, n, /*accumulate=*/false);
}

// Each wanted (output, panel) is one small product into scratch, from which the labels are picked:
// the panel's kernel is the full product's, so the bits are too.
void CpuBackend::label_logits(const RowsBuffer& in, const PackedWeight& w, RowsBuffer& out) {
  const int64_t panel_rows = w.kernels->panel_rows;
  CHECK(plan_->label_begin.size() == plan_->output_rows.size() + 1, "%zu label ranges",
        plan_->label_begin.size());
  label_order_.clear();
  for (size_t i = 0; i + 1 < plan_->label_begin.size(); ++i) {
    const uint32_t begin = plan_->label_begin[i], end = plan_->label_begin[i + 1];
    CHECK(begin <= end && end <= plan_->labels.size() && end - begin <= out.cols,
          "labels %u..%u of %zu", begin, end, plan_->labels.size());
    for (uint32_t j = begin; j < end; ++j) {
      const int32_t label = plan_->labels[j];
      CHECK(label >= 0 && label < w.matrix.n_out, "label %d", label);
      label_order_.push_back({static_cast<int64_t>(i), label, j - begin});
    }
  }
  std::sort(label_order_.begin(), label_order_.end(), [](const auto& a, const auto& b) {
    return a.output != b.output ? a.output < b.output : a.label < b.label;
  });
  label_panels_.clear();
  for (uint32_t j = 0; j < label_order_.size(); ++j) {
    const int64_t output = label_order_[j].output, panel = label_order_[j].label / panel_rows;
    if (label_panels_.empty() || label_panels_.back().output != output ||
        label_panels_.back().panel != panel) {
      label_panels_.push_back({output, panel, j, 0});
    }
    ++label_panels_.back().n_labels;
  }
  const Activations input = quantize(in, in.n_valid, w.kernels->activation, /*for_gemm=*/false);
  const auto n_units = static_cast<int64_t>(label_panels_.size());
  pool_.parallel_for(n_units, 4, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t u = begin; u < end; ++u) {
      const LabelPanel& unit = label_panels_[static_cast<size_t>(u)];
      label_panel(w, input, unit, out, thread);
    }
  });
}

void CpuBackend::label_panel(const PackedWeight& w, const Activations& input,
                             const LabelPanel& unit, RowsBuffer& out, int thread) {
  const int64_t panel_rows = w.kernels->panel_rows;
  float results[kMaxPanelRows];
  ProductArgs args;
  args.w = w.matrix;
  args.w.data += unit.panel * w.matrix.panel_bytes;
  args.w.n_out = std::min(panel_rows, w.matrix.n_out - unit.panel * panel_rows);
  args.panel_end = 1;
  args.a = rows_from(input, unit.output);
  args.row_end = 1;
  args.out = results;
  args.out_stride = kMaxPanelRows;
  args.scratch = linear_scratch(thread);
  w.kernels->gemv(args);
  for (uint32_t j = unit.first_label; j < unit.first_label + unit.n_labels; ++j) {
    const LabelOrder& label = label_order_[j];
    out.row(unit.output)[label.column] = results[label.label - unit.panel * panel_rows];
  }
}

}  // namespace okibi::cpu
