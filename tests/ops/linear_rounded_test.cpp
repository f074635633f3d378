// Products that may round their factors (ops::WeightSource::may_round): how far off they are, and
// equal bits for any neighbours and threads, over more rows, outputs and k than one block of any
// kernel takes.
#include <algorithm>
#include <array>

#include "ops/matrices.h"
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class LinearRounded : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, LinearRounded,
                         testing::ValuesIn(cases_of({DType::kQ8_0, DType::kBF16, DType::kF16,
                                                     DType::kF32, DType::kQ4_0})),
                         type_case_name);

ops::WeightSource rounded_source(const Matrix& m, float scale = 1.0f) {
  ops::WeightSource source = m.source(scale);
  source.may_round = true;
  return source;
}

// Factors of 16 bits: a sum of two bfloat16 numbers is off by 2^-17 of itself at most.
constexpr double kPairProduct = 1e-9;

TEST_P(LinearRounded, StaysWithinTheStatedErrorAtEveryTail) {
  const bool in_blocks = traits_of(GetParam().type).block_size > 1;
  for (const auto& [n_in, n_out, n_rows] :
       {std::array<int64_t, 3>{32, 1, 1}, {288, 75, 33}, {800, 33, 20}, {588, 40, 47}}) {
    if (in_blocks && n_in % 32 != 0) continue;
    const auto backend = open(GetParam().level, 2);
    const Matrix m = make_matrix(GetParam().type, n_in, n_out, 1);
    const ops::Weight w = *backend->add_weight(rounded_source(m, 0.75f));
    const std::vector<float> x = random_floats(n_rows * n_in, 3);
    const ops::Rows in = make_rows(*backend, n_rows, n_in, x);
    const ops::Rows out = make_rows(*backend, n_rows, n_out);
    run_step(*backend, Step::plain(static_cast<uint32_t>(n_rows)), [&] {
      backend->project(in, {&w, 1}, {&out, 1});
    });
    std::vector<double> expected = product_reference(m, x);
    for (double& y : expected) y *= 0.75;
    EXPECT_LT(nmse(read_rows(*backend, out, static_cast<uint32_t>(n_rows)), expected),
              in_blocks ? kQuantizedProduct : kPairProduct)
        << n_in << " x " << n_out << ", " << n_rows << " rows";
  }
}

TEST_P(LinearRounded, GivesARowTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  // 19 pairs of tiles are two strips, 14 panels two groups, 25 steps two chunks.
  constexpr int64_t kIn = 800, kOut = 430, kRows = 600;
  const Matrix m = make_matrix(GetParam().type, kIn, kOut, 4);
  const std::vector<float> x = random_floats(kRows * kIn, 5);
  std::vector<float> expected;
  for (const int n_threads : {1, 2, 5}) {
    const auto backend = open(GetParam().level, n_threads);
    const ops::Weight w = *backend->add_weight(rounded_source(m));
    const ops::Rows in = make_rows(*backend, kRows, kIn, x);
    const ops::Rows out = make_rows(*backend, kRows, kOut);
    run_step(*backend, Step::plain(kRows), [&] { backend->project(in, {&w, 1}, {&out, 1}); });
    const std::vector<float> all = read_rows(*backend, out, kRows);
    if (expected.empty()) expected = all;
    EXPECT_TRUE(all == expected) << n_threads << " threads";
    for (const uint32_t n : {1u, 31u, 45u}) {
      for (const size_t first : {size_t{0}, size_t{100}, static_cast<size_t>(kRows) - n}) {
        write_rows(*backend, in, std::span(x).subspan(first * kIn, n * kIn));
        run_step(*backend, Step::plain(n), [&] { backend->project(in, {&w, 1}, {&out, 1}); });
        EXPECT_TRUE(std::equal(expected.begin() + static_cast<int64_t>(first) * kOut,
                               expected.begin() + static_cast<int64_t>(first + n) * kOut,
                               read_rows(*backend, out, n).begin()))
            << n << " rows from " << first << ", " << n_threads << " threads";
      }
    }
  }
}

TEST_P(LinearRounded, SharesAnInputWithProductsOfOtherFormats) {
  const auto backend = open(GetParam().level, 2);
  const std::vector<float> x = random_floats(40 * 64, 7), y = random_floats(40 * 50, 8);
  const Matrix a = make_matrix(GetParam().type, 64, 50, 9),
               b = make_matrix(DType::kQ8_0, 64, 33, 10), c = make_matrix(DType::kF16, 64, 20, 11);
  const ops::Weight weights[] = {*backend->add_weight(rounded_source(a)),
                                 *backend->add_weight(rounded_source(b)),
                                 *backend->add_weight(rounded_source(c))};
  const ops::Rows in = make_rows(*backend, 40, 64, x);
  const ops::Rows outs[] = {make_rows(*backend, 40, 50), make_rows(*backend, 40, 33),
                            make_rows(*backend, 40, 20)};
  const ops::Rows sum = make_rows(*backend, 40, 50, y), alone = make_rows(*backend, 40, 20);
  run_step(*backend, Step::plain(40), [&] {
    backend->project(in, weights, outs);
    backend->project(in, {&weights[2], 1}, {&alone, 1});
    backend->project_add(in, weights[0], sum);
  });
  EXPECT_TRUE(read_rows(*backend, outs[2], 40) == read_rows(*backend, alone, 40));
  const std::vector<float> apart = read_rows(*backend, outs[0], 40);
  const std::vector<float> added = read_rows(*backend, sum, 40);
  for (size_t i = 0; i < added.size(); ++i) ASSERT_EQ(added[i], y[i] + apart[i]) << i;
}

}  // namespace
}  // namespace okibi::ops_test
