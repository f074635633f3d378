// Every level's products with every weight type: near the exact product, equal to the bit between
// the vector levels and between all ways of cutting the work, and near the golden dots.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/linear_harness.h"
#include "kernels/tolerances.h"

namespace okibi::kernel_test {
namespace {

using cpu::ActivationFormat;
using cpu::KernelTable;
using cpu::LinearKernels;

enum class Mode { kQuantised, kFloat };

const LinearKernels& kernels_of(const KernelTable& table, DType type, Mode mode) {
  const int i = static_cast<int>(type);
  return mode == Mode::kFloat ? table.linear_f32[i] : table.linear[i];
}

// A row length: a whole number of the type's blocks near n, and of the activation's.
int64_t length_near(DType type, int64_t n) {
  const int64_t block = traits_of(type).block_size;
  return std::max<int64_t>(1, n / block) * block;
}

class LinearOfType : public testing::TestWithParam<DType> {
 protected:
  // Calls body(table, kernels, name) for every level that has kernels of its own in either mode.
  template <typename Body>
  void for_each_level(const Body& body) {
    int ran = 0;
    for (const Mode mode : {Mode::kQuantised, Mode::kFloat}) {
      const LinearKernels* before = nullptr;
      for (const KernelTable& table : host_tables()) {
        const LinearKernels& k = kernels_of(table, GetParam(), mode);
        ASSERT_NE(k.layout, nullptr) << table.level;
        if (before != nullptr && before->gemv == k.gemv && before->gemm == k.gemm) continue;
        SCOPED_TRACE(fmt::format("{} {}", table.level, mode == Mode::kFloat ? "f32" : "quantised"));
        body(table, k);
        before = &k;
        ++ran;
      }
    }
    EXPECT_GE(ran, 1);
  }
  Rng rng_{20261130 + static_cast<uint64_t>(GetParam())};
};

struct Shape {
  int64_t n_in, n_out, n_rows;
};

TEST_P(LinearOfType, IsNearTheExactProductAndKeepsItsBitsHoweverTheWorkIsCut) {
  const Shape shapes[] = {{512, 70, 64}, {256, 1, 1}, {768, 9, 3}, {1280, 33, 17},
                          {1000, 17, 2}, {37, 31, 5}, {64, 8, 4},  {512, 63, 7}};
  for (const Shape& s : shapes) {
    const int64_t n_in = length_near(GetParam(), s.n_in);
    const Matrix m = random_matrix(GetParam(), n_in, s.n_out, Scales::kUsual, rng_);
    const std::vector<float> x = random_activations(s.n_rows, n_in, true, rng_);
    SCOPED_TRACE(fmt::format("{} x {}, {} rows", n_in, s.n_out, s.n_rows));
    for_each_level([&](const KernelTable& table, const LinearKernels& k) {
      Product product(table, k, m, x, s.n_rows & 1 ? 1.0f : 0.3f);
      Product unscaled(table, k, m, x);
      EXPECT_EQ(check_close(unscaled), "");
      EXPECT_EQ(check_same_bits(product, rng_), "");
      EXPECT_EQ(check_unpack(product), "");
    });
  }
}

// More rows than a strip of the cache-blocked kernels, results that go past the caches, and an odd
// number of panels.
TEST_P(LinearOfType, LargeProductsHaveTheBitsOfSmallOnes) {
  const int64_t n_in = length_near(GetParam(), 512), n_out = 1040, n_rows = 550;
  const Matrix m = random_matrix(GetParam(), n_in, n_out, Scales::kUsual, rng_);
  const std::vector<float> x = random_activations(n_rows, n_in, true, rng_);
  for (const KernelTable& table : host_tables()) {
    const LinearKernels& k = kernels_of(table, GetParam(), Mode::kQuantised);
    if (k.layout == std::string_view("file_rows")) continue;  // reference: one kernel for all
    SCOPED_TRACE(table.level);
    Product product(table, k, m, x, 0.3f);
    Buffer<float> many(n_rows * n_out), few(n_rows * n_out);
    product.run_whole(true, many.data(), n_out);
    product.run_whole(false, few.data(), n_out);
    EXPECT_EQ(compare_bits({many.data(), many.data() + many.size()},
                           {few.data(), few.data() + few.size()}, "gemm and gemv"),
              "");
  }
}

TEST_P(LinearOfType, LosesNoMoreToEightBitActivationsThanRoundingExplains) {
  const int64_t n_in = 1024;
  const Matrix m = random_matrix(GetParam(), n_in, 24, Scales::kUsual, rng_);
  const std::vector<float> x = random_activations(8, n_in, false, rng_);
  for_each_level([&](const KernelTable& table, const LinearKernels& k) {
    Product product(table, k, m, x);
    const std::vector<double> exact(x.begin(), x.end());
    const double limit = k.activation == ActivationFormat::kF32     ? kFloatRoundingNmse
                         : k.activation == ActivationFormat::kQ8B32 ? kQ8B32Nmse
                                                                    : kQ8B256Nmse;
    EXPECT_LE(normalised_error(product, product.whole(true), exact), limit);
  });
}

// Bits are compared between the levels above reference; reference rounds twice where they fuse.
TEST_P(LinearOfType, GivesTheSameBitsOnEveryVectorLevel) {
  for (const Scales scales : {Scales::kUsual, Scales::kLargest, Scales::kSubnormal}) {
    const int64_t n_in = length_near(GetParam(), 1280);
    const Matrix m = random_matrix(GetParam(), n_in, 45, scales, rng_);
    const std::vector<float> x = random_activations(11, n_in, true, rng_);
    for (const Mode mode : {Mode::kQuantised, Mode::kFloat}) {
      std::optional<std::vector<float>> first;
      for (const KernelTable& table : host_tables()) {
        if (std::string_view(table.level) == "reference") continue;
        const LinearKernels& k = kernels_of(table, GetParam(), mode);
        if (std::string_view(k.layout) == "file_rows") continue;  // fallen through to reference
        Product product(table, k, m, x);
        const std::vector<float> y = product.whole(true);
        if (!first) first = y;
        EXPECT_EQ(compare_bits(y, *first, table.level), "");
      }
    }
  }
}

TEST_P(LinearOfType, IsRightAtTheExtremesOfItsFormat) {
  const int64_t n_in = length_near(GetParam(), 512);
  for (const Scales scales : {Scales::kZero, Scales::kSubnormal, Scales::kLargest}) {
    const Matrix m = random_matrix(GetParam(), n_in, 19, scales, rng_);
    std::vector<float> x = random_activations(6, n_in, true, rng_);
    std::fill(x.begin(), x.begin() + n_in, 0.0f);
    for (int64_t k = 0; k < n_in; ++k) x[n_in + k] = k & 1 ? -3.0f : 3.0f;  // all codes +-127
    SCOPED_TRACE(fmt::format("scales {}", static_cast<int>(scales)));
    for_each_level([&](const KernelTable& table, const LinearKernels& k) {
      Product product(table, k, m, x);
      EXPECT_EQ(check_same_bits(product, rng_), "");
      const std::vector<float> y = product.whole(true);
      for (int64_t o = 0; o < m.n_out; ++o) EXPECT_EQ(y[o], 0.0f) << "zero row, output " << o;
      // Subnormal weights round to a fixed step, not to a relative one.
      if (scales == Scales::kSubnormal && traits_of(GetParam()).block_size == 1) return;
      if (GetParam() == DType::kMXFP4 && scales == Scales::kSubnormal) return;
      EXPECT_EQ(check_close(product), "");
    });
  }
}

// The largest codes of both signs against activations of +-127: where 16-bit sums would saturate.
TEST_P(LinearOfType, HoldsTheLargestSumsOfItsCodes) {
  const int64_t n_in = 512;
  Matrix m = random_matrix(GetParam(), n_in, 16, Scales::kUsual, rng_);
  if (traits_of(GetParam()).block_size == 1) return;
  const uint32_t block_bytes = traits_of(GetParam()).block_bytes;
  const uint8_t fill[] = {0xff, 0x00, 0x80, 0x7f, 0xf0, 0x0f, 0x88, 0x08};
  const Matrix scales = m;
  for (size_t i = 0; i < m.rows.size(); ++i) {
    m.rows[i] = fill[i / row_bytes(m.type, n_in) % std::size(fill)];
  }
  // Scale fields as they were: a block of the same type with other scales shows where they are.
  const Matrix a = random_matrix(GetParam(), n_in, 1, Scales::kZero, rng_);
  for (size_t i = 0; i < m.rows.size(); ++i) {
    // f16 fields are the only ones that kZero clears (sign aside) in every block.
    bool is_scale = true;
    for (size_t b = i % block_bytes; b < a.rows.size(); b += block_bytes) {
      is_scale &= (a.rows[b] & 0x7f) == 0 || a.rows[b] == 0x7f;
    }
    if (is_scale || GetParam() == DType::kIQ1_M) m.rows[i] = scales.rows[i];
  }
  m = matrix_of(m.type, n_in, m.n_out, m.rows);
  std::vector<float> x(4 * n_in);
  for (int64_t k = 0; k < n_in; ++k) {
    x[k] = 1.0f;
    x[n_in + k] = -1.0f;
    x[2 * n_in + k] = k & 1 ? -1.0f : 1.0f;
    x[3 * n_in + k] = k & 16 ? -1.0f : 1.0f;
  }
  for_each_level([&](const KernelTable& table, const LinearKernels& k) {
    Product product(table, k, m, x);
    EXPECT_EQ(check_close(product), "");
    EXPECT_EQ(check_same_bits(product, rng_), "");
  });
}

std::vector<uint8_t> read_golden(const std::string& name) {
  std::ifstream in(std::string(OKIBI_GOLDEN_DIR) + "/quants/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_P(LinearOfType, MeetsTheGoldenDots) {
  std::ifstream in(std::string(OKIBI_GOLDEN_DIR) + "/quants/manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(in);
  const std::vector<uint8_t> bytes = read_golden("activation.f32");
  std::vector<float> x(bytes.size() / sizeof(float));
  std::memcpy(x.data(), bytes.data(), bytes.size());
  int seen = 0;
  for (const auto& t : manifest["types"]) {
    if (t["type"] != name_of(GetParam())) continue;
    ++seen;
    std::vector<uint8_t> rows = read_golden(t["bin"]);
    const int64_t n_rows = t["dot_rows"], n_in = t["row_length"];
    ASSERT_EQ(static_cast<size_t>(n_in), x.size());
    rows.resize(n_rows * row_bytes(GetParam(), n_in));
    const Matrix m = matrix_of(GetParam(), n_in, n_rows, std::move(rows));
    for_each_level([&](const KernelTable& table, const LinearKernels& k) {
      Product product(table, k, m, x);
      const std::vector<float> y = product.whole(false);
      for (int64_t o = 0; o < n_rows; ++o) {
        const double tolerance =
            k.activation == ActivationFormat::kF32 ? kGoldenFloat : kGoldenQuantised;
        EXPECT_NEAR(y[o], t["dot_activation"][o].get<double>(),
                    tolerance * t["dot_abs_sum"][o].get<double>())
            << "row " << o;
      }
    });
  }
  EXPECT_EQ(seen, 1);
}

INSTANTIATE_TEST_SUITE_P(EveryWeightType, LinearOfType, testing::ValuesIn(weight_types()),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(name_of(info.param));
                         });

TEST(LinearLevels, AreThoseOfTheHostAndNamedSo) {
  std::string names;
  for (const KernelTable& table : host_tables()) names += std::string(" ") + table.level;
  fmt::print("levels run:{}\n", names);
  EXPECT_EQ(std::string_view(host_tables().front().level), "reference");
}

}  // namespace
}  // namespace okibi::kernel_test
