#include "kernels/linear_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/f16.h"
#include "kernels/tolerances.h"
#include "tensor/dequantize.h"

namespace okibi::kernel_test {
namespace {

using cpu::ActivationFormat;

int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// Byte offsets of the f16 fields of a block.
std::vector<int> f16_fields(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    case DType::kF16:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kQ1_0:
    case DType::kQ2_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kIQ1_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return {0};
    default:
      return {};
  }
}

uint16_t random_f16(Scales scales, Rng& rng) {
  const uint16_t sign = rng() & 1 ? 0x8000 : 0;
  switch (scales) {
    case Scales::kZero:
      return sign;
    case Scales::kSubnormal:
      return static_cast<uint16_t>(sign | (1 + rng() % 1023));
    case Scales::kLargest:
      return static_cast<uint16_t>(sign | 0x7bff);
    case Scales::kUsual:
      break;
  }
  return static_cast<uint16_t>(sign | ((4 + rng() % 8) << 10) | (rng() & 1023));
}

void set_scales(DType type, Scales scales, uint8_t* block, Rng& rng) {
  for (const int offset : f16_fields(type)) {
    const uint16_t d = random_f16(scales, rng);
    std::memcpy(block + offset, &d, 2);
  }
  if (type == DType::kIQ1_M) {  // four nibbles at the top of four words
    const uint16_t d = random_f16(scales, rng);
    for (int i = 0; i < 4; ++i) {
      uint8_t& top = block[49 + 2 * i];
      top = static_cast<uint8_t>((top & 15) | ((d >> (4 * i)) & 15) << 4);
    }
  } else if (type == DType::kMXFP4) {
    constexpr int kFirst[] = {116, 0, 0, 160}, kCount[] = {8, 1, 2, 1};
    const int kind = static_cast<int>(scales);
    block[0] = static_cast<uint8_t>(kFirst[kind] + static_cast<int>(rng() % kCount[kind]));
  } else if (type == DType::kNVFP4) {
    for (int i = 0; i < 4; ++i) {
      if (scales == Scales::kZero) block[i] = rng() & 1 ? 0 : 0x7f;
      if (scales == Scales::kSubnormal) block[i] = static_cast<uint8_t>(rng() & 7);
      if (scales == Scales::kLargest) block[i] = 0x7e;
      if (scales == Scales::kUsual) block[i] = static_cast<uint8_t>(0x20 + rng() % 0x30);
    }
  }
}

float random_float(Scales scales, Rng& rng) {
  std::normal_distribution<float> normal(0.0f, 0.02f);
  switch (scales) {
    case Scales::kZero:
      return 0.0f;
    case Scales::kSubnormal:
      return normal(rng) * 1e-37f;
    case Scales::kLargest:
      return normal(rng) * 1e20f;
    case Scales::kUsual:
      break;
  }
  return normal(rng);
}

void fill_block(DType type, Scales scales, uint8_t* block, uint32_t n_bytes, Rng& rng) {
  if (type == DType::kF32 || type == DType::kBF16) {
    const uint32_t bits = float_to_bits(random_float(scales, rng));
    std::memcpy(block, reinterpret_cast<const uint8_t*>(&bits) + 4 - n_bytes, n_bytes);
    return;
  }
  for (uint32_t i = 0; i < n_bytes; ++i) block[i] = static_cast<uint8_t>(rng() >> 13);
  set_scales(type, scales, block, rng);
}

}  // namespace

const std::vector<cpu::KernelTable>& host_tables() {
  static const std::vector<cpu::KernelTable> tables = [] {
    std::vector<cpu::KernelTable> t;
    for (const CpuLevel level :
         {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kAmx}) {
      if (choose_level(level, host_cpu()).ok()) t.push_back(cpu::make_table(level));
    }
    return t;
  }();
  return tables;
}

std::vector<DType> weight_types() {
  size_t n = 0;
  const DTypeTraits* all = dtype_table(&n);
  std::vector<DType> types;
  for (size_t i = 0; i < n; ++i) {
    if (all[i].is_weight) types.push_back(all[i].type);
  }
  return types;
}

Matrix matrix_of(DType type, int64_t n_in, int64_t n_out, std::vector<uint8_t> rows) {
  Matrix m{type, n_in, n_out, std::move(rows), std::vector<float>(n_in * n_out)};
  const int64_t bytes = static_cast<int64_t>(row_bytes(type, n_in));
  for (int64_t o = 0; o < n_out; ++o) {
    dequantize_row(type, m.rows.data() + o * bytes, n_in, m.values.data() + o * n_in);
  }
  return m;
}

Matrix random_matrix(DType type, int64_t n_in, int64_t n_out, Scales scales, Rng& rng) {
  const DTypeTraits& traits = traits_of(type);
  std::vector<uint8_t> rows(row_bytes(type, n_in) * n_out);
  for (size_t i = 0; i < rows.size(); i += traits.block_bytes) {
    fill_block(type, scales, rows.data() + i, traits.block_bytes, rng);
  }
  return matrix_of(type, n_in, n_out, std::move(rows));
}

std::vector<float> random_activations(int64_t n_rows, int64_t n_in, bool with_zeros, Rng& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n_rows * n_in);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(rng);
    if (with_zeros && i / 256 % 5 == 2) x[i] = 0.0f;
  }
  return x;
}

Product::Product(const cpu::KernelTable& table, const cpu::LinearKernels& kernels,
                 const Matrix& matrix, const std::vector<float>& x, float scale)
    : table_(&table), kernels_(kernels), matrix_(&matrix), x_(x), scale_(scale) {
  const int64_t n_in = matrix.n_in;
  n_rows_ = static_cast<int64_t>(x.size()) / n_in;
  n_panels_ = (matrix.n_out + kernels.panel_rows - 1) / kernels.panel_rows;
  panel_bytes_ = kernels.panel_bytes(n_in);
  packed_ = Buffer<uint8_t>(n_panels_ * panel_bytes_);
  const int64_t bytes = static_cast<int64_t>(row_bytes(matrix.type, n_in));
  for (int64_t p = 0; p < n_panels_; ++p) {
    const int64_t first = p * kernels.panel_rows;
    kernels.pack(matrix.rows.data() + first * bytes,
                 std::min<int64_t>(kernels.panel_rows, matrix.n_out - first), n_in,
                 packed_.data() + p * panel_bytes_);
  }
  if (kernels.scratch_bytes) scratch_ = Buffer<uint8_t>(kernels.scratch_bytes(n_in));

  // Strides with a gap of one line, as a buffer that also holds wider rows would have.
  a_.x_stride = round_up(n_in, 16) + 16;
  x_rows_ = Buffer<float>(n_rows_ * a_.x_stride);
  for (int64_t r = 0; r < n_rows_; ++r) {
    std::copy_n(x.data() + r * n_in, n_in, x_rows_.data() + r * a_.x_stride);
  }
  a_.x = x_rows_.data();
  if (kernels.activation == ActivationFormat::kF32) return;
  a_.q_stride = round_up(n_in, 64) + 64;
  a_.d_stride = round_up(n_in / 32, 16) + 16;
  a_.sums16_stride = round_up(n_in / 16, 32) + 32;
  q_ = Buffer<int8_t>(n_rows_ * a_.q_stride);
  d_ = Buffer<float>(n_rows_ * a_.d_stride);
  sums32_ = Buffer<int32_t>(n_rows_ * a_.d_stride);
  sums16_ = Buffer<int16_t>(n_rows_ * a_.sums16_stride);
  for (int64_t r = 0; r < n_rows_; ++r) {
    const float* row = a_.x + r * a_.x_stride;
    int8_t* q = q_.data() + r * a_.q_stride;
    float* d = d_.data() + r * a_.d_stride;
    if (kernels.activation == ActivationFormat::kQ8B32) {
      table.quantize_q8b32(row, n_in, q, d, sums32_.data() + r * a_.d_stride);
    } else {
      table.quantize_q8b256(row, n_in, q, d, sums16_.data() + r * a_.sums16_stride);
    }
  }
  a_.q = q_.data();
  a_.d = d_.data();
  a_.sums32 = sums32_.data();
  a_.sums16 = sums16_.data();
  if (table.make_tiles == nullptr) return;
  const int64_t n_tiles = cpu::tile_count(n_rows_);
  tiles_ = Buffer<uint8_t>(cpu::tiles_bytes(kernels.activation, n_rows_, n_in));
  // Two calls: tiles do not depend on what else is asked for.
  table.make_tiles(a_, kernels.activation, n_rows_, n_in, 0, n_tiles / 2, tiles_.data());
  table.make_tiles(a_, kernels.activation, n_rows_, n_in, n_tiles / 2, n_tiles, tiles_.data());
  a_.tiles = {tiles_.data(), cpu::tile_height(n_rows_), n_tiles};
}

std::vector<double> Product::seen_activations() const {
  const int64_t n_in = matrix_->n_in;
  std::vector<double> x(x_.begin(), x_.end());
  if (kernels_.activation == ActivationFormat::kF32) return x;
  const int64_t block = kernels_.activation == ActivationFormat::kQ8B32 ? 32 : 256;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t r = i / n_in, k = i % n_in;
    x[i] = double{d_[r * a_.d_stride + k / block]} * q_[r * a_.q_stride + k];
  }
  return x;
}

cpu::ProductArgs Product::whole_args(float* out, int64_t out_stride) {
  cpu::ProductArgs args;
  args.w = {packed_.data(), matrix_->n_in, matrix_->n_out, panel_bytes_, scale_};
  args.a = a_;
  args.panel_end = n_panels_;
  args.row_end = n_rows_;
  args.out = out;
  args.out_stride = out_stride;
  args.scratch = scratch_.data();
  return args;
}

void Product::run(bool gemm, int64_t panel_begin, int64_t panel_end, int64_t row_begin,
                  int64_t row_end, std::vector<float>* out, bool accumulate) {
  cpu::ProductArgs args = whole_args(out->data(), stride());
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.row_begin = row_begin;
  args.row_end = row_end;
  args.accumulate = accumulate;
  (gemm ? kernels_.gemm : kernels_.gemv)(args);
}

void Product::run_whole(bool gemm, float* out, int64_t out_stride) {
  (gemm ? kernels_.gemm : kernels_.gemv)(whole_args(out, out_stride));
}

std::vector<float> Product::whole(bool gemm) {
  std::vector<float> out(n_rows_ * stride());
  run(gemm, 0, n_panels_, 0, n_rows_, &out);
  std::vector<float> dense;
  for (int64_t r = 0; r < n_rows_; ++r) {
    const auto row = out.begin() + r * stride();
    dense.insert(dense.end(), row, row + matrix_->n_out);
  }
  return dense;
}

std::vector<float> Product::alone(int64_t row, bool gemm) {
  const int64_t n_in = matrix_->n_in;
  const std::vector<float> x(x_.begin() + row * n_in, x_.begin() + (row + 1) * n_in);
  return Product(*table_, kernels_, *matrix_, x, scale_).whole(gemm);
}

std::string compare_bits(const std::vector<float>& found, const std::vector<float>& expected,
                         const std::string& what) {
  if (found.size() != expected.size()) return what + ": sizes differ";
  for (size_t i = 0; i < found.size(); ++i) {
    if (float_to_bits(found[i]) != float_to_bits(expected[i])) {
      return fmt::format("{}: value {} of {} is {:a}, expected {:a}", what, i, found.size(),
                         found[i], expected[i]);
    }
  }
  return "";
}

double normalised_error(const Product& product, const std::vector<float>& y,
                        const std::vector<double>& x) {
  const Matrix& m = product.matrix();
  double error = 0, expected = 0;
  std::vector<double> norms(m.n_out);
  for (int64_t r = 0; r < product.n_rows(); ++r) {
    double x2 = 0;
    for (int64_t k = 0; k < m.n_in; ++k) x2 += x[r * m.n_in + k] * x[r * m.n_in + k];
    for (int64_t o = 0; o < m.n_out; ++o) {
      double dot = 0, w2 = 0;
      for (int64_t k = 0; k < m.n_in; ++k) {
        const double w = m.values[o * m.n_in + k];
        dot += w * x[r * m.n_in + k];
        w2 += w * w;
      }
      const double e = double{y[r * m.n_out + o]} - dot;
      error += e * e;
      expected += std::max(dot * dot, w2 * x2 / static_cast<double>(m.n_in));
    }
  }
  return expected > 0 ? error / expected : error;
}

std::string check_close(Product& product) {
  const bool floats = product.kernels().activation == ActivationFormat::kF32;
  const double limit = floats ? kFloatRoundingNmse : kRoundingNmse;
  const double error = normalised_error(product, product.whole(true), product.seen_activations());
  if (error <= limit) return "";  // false for NaN
  return fmt::format("{}: normalised error {} against the double product, at most {} expected",
                     product.kernels().gemm_name, error, limit);
}

std::string check_unpack(const Product& product) {
  const cpu::LinearKernels& k = product.kernels();
  const Matrix& m = product.matrix();
  if (k.unpack == nullptr) return fmt::format("layout {} has no unpack", k.layout);
  const size_t bytes = row_bytes(m.type, m.n_in);
  std::vector<uint8_t> row(bytes);
  for (int64_t o = 0; o < m.n_out; ++o) {
    k.unpack(product.panel(o / k.panel_rows), m.n_in, static_cast<int32_t>(o % k.panel_rows),
             row.data());
    if (std::memcmp(row.data(), m.rows.data() + o * bytes, bytes) != 0) {
      return fmt::format("layout {}: row {} comes back changed", k.layout, o);
    }
  }
  return "";
}

namespace {

// Random cuts of the panels and rows, by either kernel, into a buffer of sentinels. After each call
// everything outside its range must still be as it was.
std::string check_parts(Product& product, const std::vector<float>& whole, Rng& rng) {
  const float sentinel = bits_to_float(0x7fc12345);
  const int64_t n_out = product.matrix().n_out, stride = product.stride();
  const int64_t panel_rows = product.kernels().panel_rows;
  std::vector<float> out(product.n_rows() * stride, sentinel), expected = out;
  for (int64_t p = product.n_panels(); p > 0;) {
    const int64_t p_begin = std::max<int64_t>(0, p - 1 - static_cast<int64_t>(rng() % 5));
    for (int64_t r = product.n_rows(); r > 0;) {
      const int64_t r_begin = std::max<int64_t>(0, r - 1 - static_cast<int64_t>(rng() % 13));
      product.run(rng() & 1, p_begin, p, r_begin, r, &out);
      const int64_t first = p_begin * panel_rows, last = std::min(n_out, p * panel_rows);
      for (int64_t i = r_begin; i < r; ++i) {
        std::copy(whole.begin() + i * n_out + first, whole.begin() + i * n_out + last,
                  expected.begin() + i * stride + first);
      }
      const std::string problem = compare_bits(
          out, expected, fmt::format("panels {}..{}, rows {}..{}", p_begin, p, r_begin, r));
      if (!problem.empty()) return problem;
      r = r_begin;
    }
    p = p_begin;
  }
  return "";
}

std::string check_accumulate(Product& product, const std::vector<float>& whole, bool gemm) {
  const int64_t n_out = product.matrix().n_out, stride = product.stride();
  std::vector<float> out(product.n_rows() * stride, 0.75f), expected = out;
  for (int64_t r = 0; r < product.n_rows(); ++r) {
    for (int64_t o = 0; o < n_out; ++o) expected[r * stride + o] += whole[r * n_out + o];
  }
  product.run(gemm, 0, product.n_panels(), 0, product.n_rows(), &out, true);
  return compare_bits(out, expected, gemm ? "gemm that accumulates" : "gemv that accumulates");
}

}  // namespace

std::string check_same_bits(Product& product, Rng& rng) {
  const std::vector<float> whole = product.whole(true);
  std::string problem = compare_bits(product.whole(false), whole, "gemv against gemm");
  const int64_t n_out = product.matrix().n_out;
  for (int64_t i = 0; problem.empty() && i < std::min<int64_t>(product.n_rows(), 4); ++i) {
    const int64_t r =
        i == 0 ? product.n_rows() - 1 : static_cast<int64_t>(rng() % product.n_rows());
    const std::vector<float> row(whole.begin() + r * n_out, whole.begin() + (r + 1) * n_out);
    problem = compare_bits(product.alone(r, i & 1), row, fmt::format("row {} alone", r));
  }
  if (problem.empty()) problem = check_parts(product, whole, rng);
  if (problem.empty()) problem = check_accumulate(product, whole, false);
  if (problem.empty()) problem = check_accumulate(product, whole, true);
  if (problem.empty()) return "";
  return fmt::format("{} / {}: {}", product.kernels().gemv_name, product.kernels().gemm_name,
                     problem);
}

}  // namespace okibi::kernel_test
