// Norms, rope, gated SiLU and gathering against their definitions in double, on every level.
#include <cmath>

#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class Rowwise : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, Rowwise, testing::ValuesIn(host_levels()), level_test_name);

std::vector<double> norm_reference(std::span<const float> x, std::span<const float> gamma,
                                   double eps) {
  std::vector<double> y(x.size());
  const size_t n = gamma.size();
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[begin + i]) * x[begin + i];
    const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) y[begin + i] = x[begin + i] * inverse * gamma[i];
  }
  return y;
}

TEST_P(Rowwise, RmsNormFollowsItsDefinitionAtEveryTail) {
  const auto backend = open(GetParam(), 2);
  for (const int64_t n : {1, 7, 16, 31, 64, 100, 576, 1024, 4608}) {
    const std::vector<float> x = random_floats(5 * n, 1, 3.0f), gamma = random_floats(n, 2);
    const ops::Rows in = make_rows(*backend, 5, n, x), out = make_rows(*backend, 5, n);
    const ops::Vector g = *backend->add_vector(gamma);
    const Step step = Step::plain(5);
    run_step(*backend, step, [&] { backend->rms_norm(in, g, 1e-5f, out); });
    const std::vector<float> apart = read_rows(*backend, out, 5);
    EXPECT_LT(nmse(apart, norm_reference(x, gamma, 1e-5)), kRmsNorm) << n;
    run_step(*backend, step, [&] { backend->rms_norm(in, g, 1e-5f, in); });
    EXPECT_EQ(read_rows(*backend, in, 5), apart) << n << " in place";
  }
}

TEST_P(Rowwise, NormHeadsTreatsEveryHeadAsARow) {
  const auto backend = open(GetParam());
  const std::vector<float> x = random_floats(3 * 6 * 80, 3), gamma = random_floats(80, 4);
  const ops::Rows rows = make_rows(*backend, 3, 6 * 80, x);
  const ops::Vector g = *backend->add_vector(gamma);
  run_step(*backend, Step::plain(3), [&] { backend->norm_heads(rows, g, 1e-6f); });
  EXPECT_LT(nmse(read_rows(*backend, rows, 3), norm_reference(x, gamma, 1e-6)), kRmsNorm);
}

TEST_P(Rowwise, SiluMulFollowsItsDefinitionFarOutAndInPlace) {
  const auto backend = open(GetParam(), 2);
  const int64_t n = 333;
  std::vector<float> gate = random_floats(4 * n, 5, 6.0f);
  const std::vector<float> up = random_floats(4 * n, 6);
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,  -1e-30f, 88.0f, -88.0f,
                            -86.9f, 200.0f, -200.0f, 1e37f,   -1e37f};
  std::copy(std::begin(extremes), std::end(extremes), gate.begin() + 40);
  std::vector<double> want(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    want[i] = g / (1.0 + std::exp(-g)) * up[i];
  }
  const ops::Rows g = make_rows(*backend, 4, n, gate), u = make_rows(*backend, 4, n, up);
  const ops::Rows out = make_rows(*backend, 4, n);
  run_step(*backend, Step::plain(4), [&] { backend->silu_mul(g, u, out); });
  const std::vector<float> apart = read_rows(*backend, out, 4);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(apart[i], want[i], 1e-35 + 6e-7 * std::abs(want[i])) << "gate " << gate[i];
  }
  run_step(*backend, Step::plain(4), [&] { backend->silu_mul(g, u, u); });
  EXPECT_EQ(read_rows(*backend, u, 4), apart);
  run_step(*backend, Step::plain(4), [&] {
    write_rows(*backend, u, up);
    backend->silu_mul(g, u, g);
  });
  EXPECT_EQ(read_rows(*backend, g, 4), apart);
}

std::vector<double> rope_reference(std::span<const float> x, const ops::RopeConfig& c,
                                   int64_t n_heads, std::span<const int32_t> positions) {
  std::vector<double> y(x.begin(), x.end());
  for (size_t r = 0; r < positions.size(); ++r) {
    for (int64_t h = 0; h < n_heads; ++h) {
      double* head = y.data() + (static_cast<int64_t>(r) * n_heads + h) * c.head_dim;
      for (int32_t i = 0; i < c.n_rot / 2; ++i) {
        const bool half = c.style == ops::RopeStyle::kHalfSplit;
        double& a = head[half ? i : 2 * i];
        double& b = head[half ? i + c.n_rot / 2 : 2 * i + 1];
        double angle = positions[r] * std::pow(double{c.freq_base}, -2.0 * i / c.n_rot);
        if (!c.freq_divisors.empty()) angle /= c.freq_divisors[static_cast<size_t>(i)];
        const double s = std::sin(angle), co = std::cos(angle), p = a, q = b;
        a = p * co - q * s;
        b = q * co + p * s;
      }
    }
  }
  return y;
}

TEST_P(Rowwise, RopeRotatesBothPairingsPartlyAndFar) {
  const auto backend = open(GetParam(), 2);
  uint32_t seed = 10;
  for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacent, ops::RopeStyle::kHalfSplit}) {
    for (const auto& [head_dim, n_rot] :
         {std::pair{64, 64}, {80, 80}, {16, 16}, {256, 64}, {40, 20}, {24, 6}}) {
      ops::RopeConfig c;
      c.style = style;
      c.head_dim = head_dim;
      c.n_rot = n_rot;
      c.freq_base = 1e6f;
      if (head_dim == 80) c.freq_divisors = std::vector<float>(40, 1.7f);
      const std::vector<float> x = random_floats(6 * 3 * head_dim, ++seed);
      const ops::Rows rows = make_rows(*backend, 6, 3 * head_dim, x);
      const ops::Rope rope = backend->add_rope(c);
      const Step step({{.n_past = 0, .n_rows = 2}, {.n_past = 130000, .n_rows = 4}});
      run_step(*backend, step, [&] { backend->rope(rows, rope); });
      EXPECT_LT(nmse(read_rows(*backend, rows, 6), rope_reference(x, c, 3, step.plan().positions)),
                kRope)
          << head_dim << " " << n_rot;
    }
  }
}

TEST_P(Rowwise, GatherOutputsCopiesTheAskedRowsAndSetsTheCount) {
  const auto backend = open(GetParam());
  const std::vector<float> x = random_floats(5 * 32, 20), gamma(32, 1.0f);
  const ops::Rows in = make_rows(*backend, 5, 32, x);
  const ops::Rows out = make_rows(*backend, 5, 32, std::vector<float>(5 * 32, 7.0f));
  const ops::Vector g = *backend->add_vector(gamma);
  Step step = Step::plain(5);
  step.set_outputs({1, 4});
  run_step(*backend, step, [&] {
    backend->gather_outputs(in, out);
    backend->rms_norm(out, g, 1e-5f, out);
  });
  const std::vector<float> y = read_rows(*backend, out, 5);
  std::vector<float> wanted(x.begin() + 32, x.begin() + 64);
  wanted.insert(wanted.end(), x.begin() + 128, x.end());
  EXPECT_LT(nmse(std::span(y).first(64), norm_reference(wanted, gamma, 1e-5)), kRmsNorm);
  EXPECT_EQ(y[64], 7.0f) << "rows past n_outputs were touched";
}

TEST_P(Rowwise, PerfOfRealRows) {
  const auto backend = open(GetParam());
  const std::string level(cpu_level_name(GetParam()));
  for (const uint32_t n : {1u, 512u}) {
    const int64_t d = 1024, f = 4608;
    const ops::Rows x = make_rows(*backend, n, d, random_floats(n * d, 1));
    const ops::Rows h = make_rows(*backend, n, d, random_floats(n * d, 5));
    const ops::Rows g = make_rows(*backend, n, f, random_floats(n * f, 2));
    const ops::Rows u = make_rows(*backend, n, f, random_floats(n * f, 3));
    const ops::Rows y = make_rows(*backend, n, f);
    const ops::Rows y1 = make_rows(*backend, n, d);
    const ops::Vector gamma = *backend->add_vector(random_floats(d, 4));
    const ops::Vector head_gamma = *backend->add_vector(std::vector<float>(64, 1.0f));
    ops::RopeConfig c;
    c.head_dim = c.n_rot = 64;
    const ops::Rope rope = backend->add_rope(c);
    run_step(*backend, Step::plain(n), [&] {
      const std::string suffix = " rows " + std::to_string(n);
      time_case(level + ".rms_norm 1024" + suffix, n * d, "Gvalues/s",
                [&] { backend->rms_norm(x, gamma, 1e-5f, y1); });
      time_case(level + ".norm_heads 16x64" + suffix, n * d, "Gvalues/s",
                [&] { backend->norm_heads(h, head_gamma, 1e-5f); });
      time_case(level + ".rope 16x64" + suffix, n * d, "Gvalues/s",
                [&] { backend->rope(h, rope); });
      time_case(level + ".silu_mul 4608" + suffix, n * f, "Gvalues/s",
                [&] { backend->silu_mul(g, u, y); });
    });
  }
}

}  // namespace
}  // namespace okibi::ops_test
