// The operations of picture encoders against their definitions in double, on every level, and with
// equal bits whoever shares the step and however many threads run.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class Vision : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, Vision, testing::ValuesIn(host_levels()), level_test_name);

std::vector<double> layer_norm_reference(std::span<const float> x, std::span<const float> bias,
                                         std::span<const float> gamma, std::span<const float> beta,
                                         double eps) {
  std::vector<double> y(x.size());
  const size_t n = gamma.size();
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) {
      y[begin + i] = static_cast<double>(x[begin + i]) + (bias.empty() ? 0.0 : bias[i]);
      mean += y[begin + i] / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      variance += (y[begin + i] - mean) * (y[begin + i] - mean) / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      y[begin + i] = (y[begin + i] - mean) / std::sqrt(variance + eps) * gamma[i] + beta[i];
    }
  }
  return y;
}

TEST_P(Vision, LayerNormFollowsItsDefinitionAtEveryTail) {
  const auto backend = open(GetParam(), 2);
  for (const int64_t n : {2, 7, 16, 31, 48, 100, 768, 1152, 4608}) {
    std::vector<float> x = random_floats(5 * n, 1, 3.0f);
    for (float& v : x) v += 2.0f;  // a mean that must go
    const std::vector<float> bias = random_floats(n, 2), gamma = random_floats(n, 3);
    const std::vector<float> beta = random_floats(n, 4);
    const ops::Rows in = make_rows(*backend, 5, n, x), out = make_rows(*backend, 5, n);
    const ops::Vector b = *backend->add_vector(bias), g = *backend->add_vector(gamma);
    const ops::Vector s = *backend->add_vector(beta);
    const Step step = Step::plain(5);
    run_step(*backend, step, [&] { backend->layer_norm(in, {}, g, s, 1e-6f, out); });
    EXPECT_LT(nmse(read_rows(*backend, out, 5), layer_norm_reference(x, {}, gamma, beta, 1e-6)),
              kLayerNorm)
        << n;
    EXPECT_EQ(read_rows(*backend, in, 5), x) << n << ": without a bias the input stays";
    run_step(*backend, step, [&] { backend->layer_norm(in, b, g, s, 1e-6f, out); });
    const std::vector<float> apart = read_rows(*backend, out, 5);
    EXPECT_LT(nmse(apart, layer_norm_reference(x, bias, gamma, beta, 1e-6)), kLayerNorm) << n;
    for (size_t i = 0; i < x.size(); ++i) x[i] += bias[i % static_cast<size_t>(n)];
    EXPECT_EQ(read_rows(*backend, in, 5), x) << n << ": with a bias the input gains it";
    run_step(*backend, step, [&] { backend->layer_norm(in, {}, g, s, 1e-6f, in); });
    EXPECT_EQ(read_rows(*backend, in, 5), apart) << n << " in place";
  }
}

TEST_P(Vision, GeluFollowsBothDefinitionsFarOut) {
  const auto backend = open(GetParam(), 2);
  const int64_t n = 1001;
  std::vector<float> x(static_cast<size_t>(2 * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = -14.0f + 28.0f * static_cast<float>(i) / 2001.0f;
  const float extremes[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 100.0f, -100.0f, 1e19f, -1e19f, 3e38f};
  std::copy(std::begin(extremes), std::end(extremes), x.begin() + 30);
  std::vector<float> bias(static_cast<size_t>(n), 0.0f);
  bias[7] = 1.5f;
  for (const ops::Gelu kind : {ops::Gelu::kTanh, ops::Gelu::kErf}) {
    const ops::Rows rows = make_rows(*backend, 2, n, x);
    const ops::Vector b = *backend->add_vector(bias);
    run_step(*backend, Step::plain(2), [&] { backend->gelu(rows, b, kind); });
    const std::vector<float> y = read_rows(*backend, rows, 2);
    for (size_t i = 0; i < x.size(); ++i) {
      const double s = x[i] + bias[i % static_cast<size_t>(n)];
      const double want =
          kind == ops::Gelu::kErf
              ? 0.5 * s * std::erfc(-s / std::sqrt(2.0))
              : s / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (s + 0.044715 * s * s * s)));
      // Far below zero the exponent's own rounding grows; there the result is near nothing.
      ASSERT_NEAR(y[i], want, 1e-7 * std::min(std::abs(s), 1.0) + 6e-7 * std::abs(want))
          << "kind " << static_cast<int>(kind) << " of " << s;
    }
  }
}

struct Views {
  int32_t n_heads, dim;
  std::vector<uint32_t> sizes;
  std::vector<float> q, k, v;
  int64_t width() const { return int64_t{n_heads} * dim; }
};

Views make_views(int32_t n_heads, int32_t dim, std::vector<uint32_t> sizes) {
  Views x{n_heads, dim, std::move(sizes), {}, {}, {}};
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    const auto add = [&](std::vector<float>& to, uint32_t seed) {
      const std::vector<float> values = random_floats(x.sizes[i] * x.width(), seed);
      to.insert(to.end(), values.begin(), values.end());
    };
    // Seeded by size, so that a view is the same wherever it stands.
    add(x.q, 3 * x.sizes[i]);
    add(x.k, 3 * x.sizes[i] + 1);
    add(x.v, 3 * x.sizes[i] + 2);
  }
  return x;
}

std::vector<float> biases(const Views& x) {
  return random_floats(3 * x.width(), 99);
}

// (rows, width) of all views.
std::vector<float> run_views(CpuLevel level, int n_threads, const Views& x,
                             bool may_round = false) {
  const auto backend = open(level, n_threads);
  const int64_t n = std::accumulate(x.sizes.begin(), x.sizes.end(), int64_t{0});
  EXPECT_TRUE(backend->set_view_attention(n + 5, x.n_heads, x.dim).ok());
  const ops::Rows q = make_rows(*backend, n, x.width(), x.q);
  const ops::Rows k = make_rows(*backend, n, x.width(), x.k);
  const ops::Rows v = make_rows(*backend, n, x.width(), x.v);
  const ops::Rows out = make_rows(*backend, n, x.width());
  const std::vector<float> b = biases(x);
  const auto width = static_cast<size_t>(x.width());
  ops::ViewAttention a;
  a.n_heads = x.n_heads;
  a.scale = 0.3f;
  a.may_round = may_round;
  a.q_bias = *backend->add_vector({b.data(), width});
  a.k_bias = *backend->add_vector({b.data() + width, width});
  a.v_bias = *backend->add_vector({b.data() + 2 * width, width});
  std::vector<Step::Sequence> sequences;
  for (const uint32_t size : x.sizes) sequences.push_back({.n_rows = size});
  run_step(*backend, Step(sequences), [&] { backend->attend_view(a, q, k, v, out); });
  return read_rows(*backend, out, n);
}

std::vector<double> attend_reference(const Views& x) {
  const std::vector<float> b = biases(x);
  const int64_t w = x.width();
  std::vector<double> out(x.q.size());
  int64_t first = 0;
  for (const uint32_t size : x.sizes) {
    for (int64_t t = 0; t < size; ++t) {
      for (int64_t h = 0; h < x.n_heads; ++h) {
        std::vector<double> p(size);
        double largest = -1e300, sum = 0;
        for (int64_t j = 0; j < size; ++j) {
          double dot = 0;
          for (int64_t i = h * x.dim; i < (h + 1) * x.dim; ++i) {
            dot += (static_cast<double>(x.q[(first + t) * w + i]) + b[i]) *
                   (static_cast<double>(x.k[(first + j) * w + i]) + b[w + i]);
          }
          p[j] = dot * 0.3f;
          largest = std::max(largest, p[j]);
        }
        for (double& value : p) sum += value = std::exp(value - largest);
        for (int64_t j = 0; j < size; ++j) {
          for (int64_t i = h * x.dim; i < (h + 1) * x.dim; ++i) {
            out[(first + t) * w + i] +=
                p[j] / sum * (static_cast<double>(x.v[(first + j) * w + i]) + b[2 * w + i]);
          }
        }
      }
    }
    first += size;
  }
  return out;
}

TEST_P(Vision, AViewAttendsToAllOfItselfAndToNothingElse) {
  for (const auto& [n_heads, dim] : {std::pair{4, 12}, {2, 64}, {2, 72}}) {
    const Views x = make_views(n_heads, dim, {5, 300, 1, 64, 70});
    const std::vector<double> want = attend_reference(x);
    EXPECT_LT(nmse(run_views(GetParam(), 1, x), want), kAttend) << dim;
    EXPECT_LT(nmse(run_views(GetParam(), 1, x, /*may_round=*/true), want), kAttendRounded) << dim;
  }
}

// A row's weights are kept as powers of two below a reference that rises with its scores, here
// several times, from far below to far above those of the first keys.
TEST_P(Vision, ScoresMayRiseFarAboveTheFirst) {
  for (const uint32_t size : {100u, 300u, 700u}) {
    Views x = make_views(2, 64, {size});
    const std::vector<float> b = biases(x);
    const int64_t w = x.width();
    // Scores grow by 8 every 32 keys; the other dims still tell keys apart.
    for (uint32_t j = 0; j < size; ++j) {
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t i = h * 64;
        for (int64_t d = 0; d < 64; ++d) {
          x.q[j * w + i + d] = (d == 0 ? 1.0f : 0.125f * x.q[j * w + i + d]) - b[i + d];
        }
        const float step = 32.0f * static_cast<float>(j / 32) - 256.0f;  // exact in bfloat16
        x.k[j * w + i] = step - b[w + i];
      }
    }
    EXPECT_LT(nmse(run_views(GetParam(), 2, x), attend_reference(x)), kAttendSharp) << size;
    EXPECT_LT(nmse(run_views(GetParam(), 2, x, /*may_round=*/true), attend_reference(x)),
              kAttendRounded)
        << size;
  }
}

TEST_P(Vision, AViewsRowsAreTheSameBitsAloneAmongOthersAndOnThreads) {
  for (const bool may_round : {false, true}) {
    const Views all = make_views(3, 20, {7, 300, 65});
    const std::vector<float> together = run_views(GetParam(), 1, all, may_round);
    EXPECT_EQ(run_views(GetParam(), 3, all, may_round), together);
    size_t begin = 0;
    for (const uint32_t size : all.sizes) {
      const std::vector<float> alone =
          run_views(GetParam(), 2, make_views(3, 20, {size}), may_round);
      ASSERT_LE(begin + alone.size(), together.size());
      EXPECT_TRUE(
          std::equal(alone.begin(), alone.end(), together.begin() + static_cast<long>(begin)))
          << "view of " << size;
      begin += alone.size();
    }
  }
}

TEST_P(Vision, JoinRowsPutsTheAskedRowsSideBySideAndSetsTheCount) {
  const auto backend = open(GetParam());
  const std::vector<float> x = random_floats(8 * 5, 7), bias(20, 1.0f);
  const ops::Rows in = make_rows(*backend, 8, 5, x), out = make_rows(*backend, 2, 20);
  const ops::Vector b = *backend->add_vector(bias);
  Step step = Step::plain(8);
  const std::vector<uint32_t> order = {0, 1, 4, 5, 2, 3, 6, 7};
  step.set_outputs(order);
  run_step(*backend, step, [&] {
    backend->join_rows(in, out);
    backend->add_bias(out, b);
  });
  std::vector<float> want;
  for (const uint32_t r : order) {
    for (size_t i = 0; i < 5; ++i) want.push_back(x[5 * r + i] + 1.0f);
  }
  EXPECT_EQ(read_rows(*backend, out, 2), want);
}

TEST_P(Vision, PutEmbeddingsReplacesTheRowsThatHaveOne) {
  const auto backend = open(GetParam());
  const std::vector<float> x = random_floats(3 * 6, 8), row = random_floats(6, 9);
  const ops::Rows rows = make_rows(*backend, 3, 6, x);
  const Step step = Step::plain(3);
  ops::BatchPlan plan = step.plan();
  const std::vector<const float*> embeddings = {nullptr, row.data(), nullptr};
  plan.embeddings = embeddings;
  backend->begin_step(plan);
  backend->put_embeddings(rows);
  backend->end_step();
  std::vector<float> want = x;
  std::copy(row.begin(), row.end(), want.begin() + 6);
  EXPECT_EQ(read_rows(*backend, rows, 3), want);
}

// The sizes of the 450M encoder on a view of 512 x 288 pixels.
TEST_P(Vision, TimesUnderPerf) {
  if (!perf_enabled || GetParam() == CpuLevel::kReference) return;
  const auto backend = open(GetParam());
  const int64_t n = 576, d = 768, f = 3072;
  ASSERT_TRUE(backend->set_view_attention(n, 12, 64).ok());
  const std::vector<float> x = random_floats(n * d, 1);
  const ops::Rows q = make_rows(*backend, n, d, x), k = make_rows(*backend, n, d, x);
  const ops::Rows v = make_rows(*backend, n, d, x), out = make_rows(*backend, n, d);
  const ops::Rows ff = make_rows(*backend, n, f, random_floats(n * f, 2));
  const ops::Vector b = *backend->add_vector(random_floats(d, 3, 0.01f));
  const ops::Vector bf = *backend->add_vector(random_floats(f, 4, 0.01f));
  const std::string level(cpu_level_name(GetParam()));
  const Step step = Step::plain(static_cast<uint32_t>(n));
  const auto time = [&](const char* name, double work, const char* unit,
                        const std::function<void()>& body) {
    time_case(level + " " + name, work, unit, [&] { run_step(*backend, step, body); });
  };
  const double products = 4.0 * static_cast<double>(n * n * d);
  ops::ViewAttention a{.n_heads = 12, .scale = 0.125f, .q_bias = b, .k_bias = b, .v_bias = b};
  time("attend_view", products, "GFLOP/s", [&] { backend->attend_view(a, q, k, v, out); });
  a.may_round = true;
  time("attend_view, may round", products, "GFLOP/s",
       [&] { backend->attend_view(a, q, k, v, out); });
  const double values = static_cast<double>(n * f);
  time("gelu tanh", values, "G/s", [&] { backend->gelu(ff, bf, ops::Gelu::kTanh); });
  time("gelu erf", values, "G/s", [&] { backend->gelu(ff, bf, ops::Gelu::kErf); });
  time("layer_norm", static_cast<double>(n * d), "G/s",
       [&] { backend->layer_norm(out, b, b, b, 1e-6f, k); });
}

TEST(VisionLevels, VectorLevelsGiveEachOthersBits) {
  const std::vector<CpuLevel> levels = host_levels();
  if (levels.size() < 3) GTEST_SKIP() << "this host has one vector level";
  const Views x = make_views(2, 36, {280});
  const auto pass = [](CpuLevel level) {
    const auto backend = open(level, 1);
    const std::vector<float> values = random_floats(3 * 100, 5, 3.0f);
    const ops::Rows rows = make_rows(*backend, 3, 100, values), out = make_rows(*backend, 3, 100);
    const ops::Vector b = *backend->add_vector(random_floats(100, 6));
    std::vector<float> all;
    run_step(*backend, Step::plain(3), [&] {
      backend->layer_norm(rows, b, b, b, 1e-6f, out);
      all = read_rows(*backend, out, 3);
      backend->gelu(out, b, ops::Gelu::kTanh);
      backend->gelu(rows, b, ops::Gelu::kErf);
    });
    for (const ops::Rows r : {rows, out}) {
      const std::vector<float> more = read_rows(*backend, r, 3);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  for (size_t i = 2; i < levels.size(); ++i) {
    EXPECT_EQ(run_views(levels[i], 1, x), run_views(levels[1], 1, x));
    EXPECT_EQ(pass(levels[i]), pass(levels[1]));
  }
}

}  // namespace
}  // namespace okibi::ops_test
