// Operations that join others, mostly of picture encoders: what they give is what their parts would
// give, rounded where the parts may round, and the same for any neighbours and threads.
#include <algorithm>
#include <cmath>

#include "ops/matrices.h"
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class VisionFused : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, VisionFused,
                         testing::ValuesIn(cases_of({DType::kQ8_0, DType::kF16, DType::kQ4_0})),
                         type_case_name);

ops::Weight add(ops::Backend& backend, const Matrix& m) {
  ops::WeightSource source = m.source(0.75f);
  source.may_round = true;
  return *backend.add_weight(source);
}

double gelu_tanh(double s) {
  return s / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (s + 0.044715 * s * s * s)));
}

struct FeedForward {
  static constexpr int64_t kIn = 96, kHidden = 864, kOut = 75;
  Matrix up, down;
  std::vector<float> bias = random_floats(kHidden, 3);

  explicit FeedForward(DType type)
      : up(make_matrix(type, kIn, kHidden, 1)), down(make_matrix(type, kHidden, kOut, 2)) {}

  std::vector<float> run(CpuLevel level, int n_threads, std::span<const float> x,
                         std::span<const float> y, ops::Gelu kind) const {
    const auto n = static_cast<int64_t>(x.size()) / kIn;
    const auto backend = open(level, n_threads);
    const ops::Weight rise = add(*backend, up), fall = add(*backend, down);
    const ops::Vector b = *backend->add_vector(bias);
    const ops::Rows in = make_rows(*backend, n, kIn, x), hidden = make_rows(*backend, n, kHidden);
    const ops::Rows out = make_rows(*backend, n, kOut, y);
    run_step(*backend, Step::plain(static_cast<uint32_t>(n)),
             [&] { backend->feed_forward(in, rise, b, kind, hidden, fall, out); });
    return read_rows(*backend, out, n);
  }
};

// Rows of two chunks of the bfloat16 products, into hidden rows of two.
struct GatedFeedForward {
  static constexpr int64_t kIn = 1056, kHidden = 864, kOut = 75;
  Matrix gate, up, down;

  explicit GatedFeedForward(DType type)
      : gate(make_matrix(type, kIn, kHidden, 1)),
        up(make_matrix(type, kIn, kHidden, 2)),
        down(make_matrix(type, kHidden, kOut, 3)) {}

  std::vector<float> run(CpuLevel level, int n_threads, std::span<const float> x,
                         std::span<const float> y) const {
    const auto n = static_cast<int64_t>(x.size()) / kIn;
    const auto backend = open(level, n_threads);
    const ops::Weight g = add(*backend, gate), u = add(*backend, up), d = add(*backend, down);
    const ops::Rows in = make_rows(*backend, n, kIn, x);
    const ops::Rows hidden = make_rows(*backend, n, kHidden),
                    hidden2 = make_rows(*backend, n, kHidden);
    const ops::Rows out = make_rows(*backend, n, kOut, y);
    run_step(*backend, Step::plain(static_cast<uint32_t>(n)),
             [&] { backend->gated_feed_forward(in, g, u, hidden, hidden2, d, out); });
    return read_rows(*backend, out, n);
  }
};

TEST_P(VisionFused, GatedFeedForwardFollowsItsDefinition) {
  constexpr int64_t kRows = 70;
  const GatedFeedForward f(GetParam().type);
  const std::vector<float> x = random_floats(kRows * f.kIn, 5, 3.0f);
  const std::vector<float> zeros(kRows * f.kOut, 0.0f);
  const std::vector<double> gate = product_reference(f.gate, x), up = product_reference(f.up, x);
  std::vector<float> hidden(gate.size());
  for (size_t i = 0; i < hidden.size(); ++i) {
    const double g = 0.75 * gate[i];
    hidden[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * 0.75 * up[i]);
  }
  std::vector<double> want = product_reference(f.down, hidden);
  for (double& v : want) v *= 0.75;
  EXPECT_LT(nmse(f.run(GetParam().level, 2, x, zeros), want), 3 * kQuantizedProduct);
}

TEST_P(VisionFused, GatedFeedForwardGivesARowTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  constexpr int64_t kRows = 70;
  const GatedFeedForward f(GetParam().type);
  const std::vector<float> x = random_floats(kRows * f.kIn, 5),
                           y = random_floats(kRows * f.kOut, 6);
  const std::vector<float> all = f.run(GetParam().level, 1, x, y);
  EXPECT_TRUE(f.run(GetParam().level, 3, x, y) == all);
  for (const int64_t row : {0, 31, 45}) {
    const std::vector<float> alone =
        f.run(GetParam().level, 1, std::span(x).subspan(static_cast<size_t>(row * f.kIn), f.kIn),
              std::span(y).subspan(static_cast<size_t>(row * f.kOut), f.kOut));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * f.kOut)) << row;
  }
}

TEST_P(VisionFused, FeedForwardFollowsItsDefinition) {
  constexpr int64_t kRows = 70;
  const FeedForward f(GetParam().type);
  const std::vector<float> x = random_floats(kRows * f.kIn, 5, 3.0f);
  const std::vector<float> zeros(kRows * f.kOut, 0.0f);
  std::vector<double> hidden = product_reference(f.up, x);
  std::vector<float> rounded(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) {
    rounded[i] = static_cast<float>(gelu_tanh(0.75 * hidden[i] + f.bias[i % f.bias.size()]));
  }
  std::vector<double> want = product_reference(f.down, rounded);
  for (double& v : want) v *= 0.75;
  EXPECT_LT(nmse(f.run(GetParam().level, 2, x, zeros, ops::Gelu::kTanh), want),
            2 * kQuantizedProduct);
}

TEST_P(VisionFused, FeedForwardGivesARowTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  constexpr int64_t kRows = 70;
  const FeedForward f(GetParam().type);
  const std::vector<float> x = random_floats(kRows * f.kIn, 5),
                           y = random_floats(kRows * f.kOut, 6);
  for (const ops::Gelu kind : {ops::Gelu::kTanh, ops::Gelu::kErf}) {
    const std::vector<float> all = f.run(GetParam().level, 1, x, y, kind);
    EXPECT_TRUE(f.run(GetParam().level, 3, x, y, kind) == all);
    for (const int64_t row : {0, 31, 45}) {
      const std::vector<float> alone =
          f.run(GetParam().level, 1, std::span(x).subspan(static_cast<size_t>(row * f.kIn), f.kIn),
                std::span(y).subspan(static_cast<size_t>(row * f.kOut), f.kOut), kind);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * f.kOut)) << row;
    }
  }
}

TEST_P(VisionFused, InputRowsGiveProductsTheBitsOfPlainRows) {
  constexpr int64_t kRows = 45, kIn = 96;
  const auto backend = open(GetParam().level, 2);
  const Matrix m = make_matrix(GetParam().type, kIn, 50, 1);
  const ops::Weight w = add(*backend, m);
  const ops::Rows x = make_rows(*backend, kRows, kIn, random_floats(kRows * kIn, 2));
  const ops::Vector v = *backend->add_vector(random_floats(kIn, 3));
  const ops::Rows plain = make_rows(*backend, kRows, kIn);
  const ops::Rows kept = *backend->add_input_rows(kRows, kIn, {&w, 1});
  const ops::Rows outs[] = {make_rows(*backend, kRows, 50), make_rows(*backend, kRows, 50)};
  run_step(*backend, Step::plain(kRows), [&] {
    backend->layer_norm(x, {}, v, v, 1e-6f, plain);
    backend->layer_norm(x, {}, v, v, 1e-6f, kept);
    backend->project(plain, {&w, 1}, {&outs[0], 1});
    backend->project(kept, {&w, 1}, {&outs[1], 1});
  });
  EXPECT_TRUE(read_rows(*backend, outs[0], kRows) == read_rows(*backend, outs[1], kRows));
}

TEST_P(VisionFused, ProjectAttendViewGivesTheBitsOfItsParts) {
  for (const auto& [n_heads, dim] : {std::pair{3, 64}, {2, 32}, {2, 48}}) {
    for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{75}, {64}, {40, 33}}) {
      const int64_t n = sizes.size() == 1 ? sizes[0] : sizes[0] + sizes[1], d = n_heads * dim;
      const auto backend = open(GetParam().level, 2);
      ASSERT_TRUE(backend->set_view_attention(n, n_heads, dim).ok());
      ops::Weight weights[3];
      ops::Vector biases[3];
      ops::Rows between[3];
      for (uint32_t i = 0; i < 3; ++i) {
        weights[i] = add(*backend, make_matrix(GetParam().type, 96, d, i));
        biases[i] = *backend->add_vector(random_floats(d, 10 + i));
        between[i] = make_rows(*backend, n, d);
      }
      const ops::Rows in = make_rows(*backend, n, 96, random_floats(n * 96, 20));
      const ops::Rows apart = make_rows(*backend, n, d), joined = make_rows(*backend, n, d);
      const ops::Weight reader = add(*backend, make_matrix(GetParam().type, d, 40, 5));
      const ops::Rows kept = *backend->add_input_rows(n, d, {&reader, 1});
      const ops::Rows outs[] = {make_rows(*backend, n, 40), make_rows(*backend, n, 40)};
      const ops::ViewAttention a{.n_heads = n_heads,
                                 .scale = 0.2f,
                                 .q_bias = biases[0],
                                 .k_bias = biases[1],
                                 .v_bias = biases[2],
                                 .may_round = true};
      std::vector<Step::Sequence> sequences;
      for (const uint32_t size : sizes) sequences.push_back({.n_rows = size});
      run_step(*backend, Step(sequences), [&] {
        backend->project(in, weights, between);
        backend->attend_view(a, between[0], between[1], between[2], apart);
        backend->project_attend_view(a, in, weights, between[0], between[1], between[2], joined);
        backend->project_attend_view(a, in, weights, between[0], between[1], between[2], kept);
        backend->project(joined, {&reader, 1}, {&outs[0], 1});
        backend->project(kept, {&reader, 1}, {&outs[1], 1});
      });
      EXPECT_TRUE(read_rows(*backend, outs[0], n) == read_rows(*backend, outs[1], n));
      EXPECT_TRUE(read_rows(*backend, apart, n) == read_rows(*backend, joined, n))
          << n_heads << " heads of " << dim << ", " << n << " rows";
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
