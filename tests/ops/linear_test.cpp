// Products as the backend runs them: against double sums over the dequantised weights, with equal
// bits for any neighbours, threads and label selection, and token rows read back exactly.
#include <algorithm>

#include "ops/matrices.h"
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace okibi::ops_test {
namespace {

class Linear : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(
    LevelsAndTypes, Linear,
    testing::ValuesIn(cases_of({DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                                DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K,
                                DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS})),
    type_case_name);

double tolerance(DType type) {
  const bool is_float = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
  return is_float ? kFloatProduct : kQuantizedProduct;
}

constexpr int64_t kIn = 512;

TEST_P(Linear, ProjectsSeveralMatricesWithinTheStatedError) {
  for (const ActivationType activations : {ActivationType::kInt8, ActivationType::kF32}) {
    const auto backend = open(GetParam().level, 2, activations);
    const Matrix a = make_matrix(GetParam().type, kIn, 75, 1);
    const Matrix b = make_matrix(DType::kF16, kIn, 33, 2);
    const ops::Weight weights[] = {*backend->add_weight(a.source()),
                                   *backend->add_weight(b.source(0.5f))};
    const std::vector<float> x = random_floats(9 * kIn, 3);
    const ops::Rows in = make_rows(*backend, 9, kIn, x);
    const ops::Rows outs[] = {make_rows(*backend, 9, 75), make_rows(*backend, 9, 33)};
    run_step(*backend, Step::plain(9), [&] { backend->project(in, weights, outs); });
    EXPECT_LT(nmse(read_rows(*backend, outs[0], 9), product_reference(a, x)),
              activations == ActivationType::kF32 ? kFloatProduct : tolerance(GetParam().type));
    std::vector<double> halved = product_reference(b, x);
    for (double& y : halved) y *= 0.5;
    EXPECT_LT(nmse(read_rows(*backend, outs[1], 9), halved), kFloatProduct);
  }
}

TEST_P(Linear, GivesARowTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  const Matrix m = make_matrix(GetParam().type, kIn, 70, 4);
  const std::vector<float> x = random_floats(64 * kIn, 5);
  std::vector<float> expected;
  for (const int n_threads : {1, 2, 5}) {
    const auto backend = open(GetParam().level, n_threads);
    const ops::Weight w = *backend->add_weight(m.source());
    const ops::Rows in = make_rows(*backend, 64, kIn, x), out = make_rows(*backend, 64, 70);
    run_step(*backend, Step::plain(64), [&] { backend->project(in, {&w, 1}, {&out, 1}); });
    const std::vector<float> all = read_rows(*backend, out, 64);
    if (expected.empty()) expected = all;
    EXPECT_TRUE(all == expected) << n_threads << " threads";
    for (const uint32_t n : {1u, 2u, 3u, 7u, 17u}) {
      for (const size_t first : {size_t{0}, size_t{64 - n}}) {
        write_rows(*backend, in, std::span(x).subspan(first * kIn, n * kIn));
        run_step(*backend, Step::plain(n), [&] { backend->project(in, {&w, 1}, {&out, 1}); });
        EXPECT_TRUE(std::equal(expected.begin() + static_cast<int64_t>(first) * 70,
                               expected.begin() + static_cast<int64_t>(first + n) * 70,
                               read_rows(*backend, out, n).begin()))
            << n << " rows from " << first << ", " << n_threads << " threads";
      }
    }
  }
}

TEST_P(Linear, ProjectAddAddsTheRoundedProduct) {
  const auto backend = open(GetParam().level, 2);
  const Matrix m = make_matrix(GetParam().type, kIn, 70, 6);
  const ops::Weight w = *backend->add_weight(m.source(1.5f));
  const std::vector<float> x = random_floats(20 * kIn, 7), y = random_floats(20 * 70, 8);
  const ops::Rows in = make_rows(*backend, 20, kIn, x);
  const ops::Rows apart = make_rows(*backend, 20, 70), sum = make_rows(*backend, 20, 70, y);
  for (const uint32_t n : {20u, 1u}) {
    write_rows(*backend, sum, y);
    run_step(*backend, Step::plain(n), [&] {
      backend->project(in, {&w, 1}, {&apart, 1});
      backend->project_add(in, w, sum);
    });
    std::vector<float> want = read_rows(*backend, apart, n);
    for (size_t i = 0; i < want.size(); ++i) want[i] = y[i] + want[i];
    EXPECT_TRUE(read_rows(*backend, sum, n) == want) << n;
  }
}

TEST_P(Linear, EmbedReadsRowsBackExactly) {
  const auto backend = open(GetParam().level, 2);
  const Matrix m = make_matrix(GetParam().type, kIn, 70, 9);
  const ops::Weight w = *backend->add_weight(m.source());
  const ops::Rows out = make_rows(*backend, 70, kIn);
  Step step = Step::plain(70);
  std::vector<int32_t> tokens(70);
  for (int32_t i = 0; i < 70; ++i) tokens[static_cast<size_t>(i)] = (i * 13 + 5) % 70;
  step.set_tokens(tokens);
  run_step(*backend, step, [&] { backend->embed(w, out); });
  for (int64_t r = 0; r < 70; ++r) {
    const std::span<const float> row = backend->read(out, r);
    EXPECT_TRUE(
        std::equal(row.begin(), row.end(), m.values.begin() + tokens[static_cast<size_t>(r)] * kIn))
        << "token " << tokens[static_cast<size_t>(r)];
  }
}

TEST_P(Linear, LabelLogitsAreTheFullProductsEntries) {
  const auto backend = open(GetParam().level, 2);
  const int64_t n_vocab = 203;
  const Matrix m = make_matrix(GetParam().type, kIn, n_vocab, 10);
  const ops::Weight w = *backend->add_weight(m.source(0.75f));
  const ops::Rows x = make_rows(*backend, 30, kIn, random_floats(30 * kIn, 11));
  const ops::Rows gathered = make_rows(*backend, 30, kIn);
  const ops::Rows full = make_rows(*backend, 30, n_vocab), few = make_rows(*backend, 30, 8);
  Step step = Step::plain(30);
  step.set_outputs({0, 7, 8, 29});
  run_step(*backend, step, [&] {
    backend->gather_outputs(x, gathered);
    backend->logits(gathered, w, full);
  });
  const std::vector<std::vector<int32_t>> labels = {{202, 0, 5}, {}, {64, 63, 15, 16, 15}, {100}};
  step.set_labels(labels);
  run_step(*backend, step, [&] {
    backend->gather_outputs(x, gathered);
    backend->logits(gathered, w, few);
  });
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t j = 0; j < labels[i].size(); ++j) {
      EXPECT_EQ(backend->read(few, static_cast<int64_t>(i))[j],
                backend->read(full, static_cast<int64_t>(i))[static_cast<size_t>(labels[i][j])])
          << "output " << i << " label " << labels[i][j];
    }
  }
}

TEST_P(Linear, PerfOfRealShapes) {
  if (!perf_enabled) return;
  const auto backend = open(GetParam().level);
  const Matrix m = make_matrix(GetParam().type, 1024, 4608, 1);
  const ops::Weight w = *backend->add_weight(m.source());
  for (const uint32_t n : {1u, 4u, 512u}) {
    if (GetParam().level == CpuLevel::kReference && n > 4) continue;
    const ops::Rows in = make_rows(*backend, n, 1024, random_floats(n * 1024, 2));
    const ops::Rows out = make_rows(*backend, n, 4608);
    run_step(*backend, Step::plain(n), [&] {
      time_case(std::string(cpu_level_name(GetParam().level)) + "." +
                    std::string(name_of(GetParam().type)) + " 1024 x 4608 rows " +
                    std::to_string(n),
                2.0 * 1024 * 4608 * n, "GOP/s", [&] {
                  backend->project(in, {&w, 1}, {&out, 1});
                });
    });
  }
}

TEST(LinearErrors, AWeightThatNoKernelReadsIsRefusedByName) {
  const auto backend = open(CpuLevel::kReference);
  const uint8_t byte = 0;
  const auto integer = backend->add_weight({"blk.3.odd.weight", DType::kI32, 32, 1, &byte, 1.0f});
  EXPECT_EQ(integer.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(integer.status().message().find("blk.3.odd.weight"), std::string::npos);
  const auto cut = backend->add_weight({"blk.4.cut.weight", DType::kQ4_K, 300, 1, &byte, 1.0f});
  EXPECT_EQ(cut.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(cut.status().message().find("256"), std::string::npos) << cut.status().message();
}

TEST(BackendIdentity, NamesEverythingThatResultsDependOn) {
  const auto backend = open(CpuLevel::kReference, 1, ActivationType::kF32);
  ASSERT_TRUE(
      backend->set_kv({.layers = {{1, 32, 32}}, .type = ops::KvType::kQ8_0, .max_pages = 1}).ok());
  EXPECT_EQ(backend->numeric_identity(), "cpu/reference/r4/kv=q8_0/act=f32");
  for (const CpuLevel level : host_levels()) {
    EXPECT_NE(open(level)->numeric_identity().find(cpu_level_name(level)), std::string::npos);
  }
  const auto none = cpu::make_cpu_backend({.n_threads = 0});
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace okibi::ops_test
