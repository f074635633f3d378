// The gated delta rule against the recurrence in double, and its state across steps.
#include <cmath>

#include "ops/recurrent_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class DeltaRule : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, DeltaRule, testing::ValuesIn(host_levels()), level_test_name);

struct Shape {
  int32_t n_key_heads, n_value_heads, head_dim;
  int64_t qkv() const { return int64_t{2 * n_key_heads + n_value_heads} * head_dim; }
  int64_t state() const { return int64_t{n_value_heads} * head_dim * head_dim; }
};

std::vector<float> decay_rates(int64_t n) {
  std::vector<float> a = random_floats(n, 21);
  for (float& v : a) v = -std::abs(v) * 0.3f;
  return a;
}
std::vector<float> time_biases(int64_t n) {
  return random_floats(n, 22);
}

Inputs make_inputs(const Shape& s, int64_t n_rows, uint32_t seed) {
  return {random_floats(n_rows * s.qkv(), seed),
          random_floats(n_rows * s.n_value_heads, seed + 1, 2.0f),
          random_floats(n_rows * s.n_value_heads, seed + 2)};
}

REFERENCE_CODE double softplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

// One head: q, k, v of a row, state (keys, values).
REFERENCE_CODE void delta_row(const float* q, const float* k, const float* v, double decay,
                              double beta, size_t d, double* s, double* out) {
  double qq = 0, kk = 0;
  for (size_t i = 0; i < d; ++i) {
    qq += static_cast<double>(q[i]) * q[i];
    kk += static_cast<double>(k[i]) * k[i];
  }
  const double q_scale = 1 / std::sqrt(qq + 1e-6) / std::sqrt(static_cast<double>(d));
  const double k_scale = 1 / std::sqrt(kk + 1e-6);
  for (size_t j = 0; j < d; ++j) {
    double recalled = 0;
    for (size_t i = 0; i < d; ++i) {
      s[i * d + j] *= decay;
      recalled += s[i * d + j] * k[i] * k_scale;
    }
    const double r = beta * (v[j] - recalled);
    out[j] = 0;
    for (size_t i = 0; i < d; ++i) {
      s[i * d + j] += k[i] * k_scale * r;
      out[j] += s[i * d + j] * q[i] * q_scale;
    }
  }
}

// Outputs and the last state.
REFERENCE_CODE std::pair<std::vector<double>, std::vector<double>> delta_reference(
    const Shape& shape, const Inputs& x) {
  const auto d = static_cast<size_t>(shape.head_dim);
  const auto n_v = static_cast<size_t>(shape.n_value_heads);
  const auto n_k = static_cast<size_t>(shape.n_key_heads);
  const std::vector<float> a = decay_rates(shape.n_value_heads);
  const std::vector<float> bias = time_biases(shape.n_value_heads);
  const size_t n = x[1].size() / n_v;
  std::vector<double> out(n * n_v * d), state(n_v * d * d);
  for (size_t t = 0; t < n; ++t) {
    const float* row = x[0].data() + t * static_cast<size_t>(shape.qkv());
    for (size_t h = 0; h < n_v; ++h) {
      const double g = a[h] * softplus(static_cast<double>(x[1][t * n_v + h]) + bias[h]);
      const double beta = 1 / (1 + std::exp(-static_cast<double>(x[2][t * n_v + h])));
      delta_row(row + h % n_k * d, row + (n_k + h % n_k) * d, row + (2 * n_k + h) * d, std::exp(g),
                beta, d, state.data() + h * d * d, out.data() + (t * n_v + h) * d);
    }
  }
  return {out, state};
}

constexpr uint64_t kOffset = 3;  // state of this layer inside a slot: not aligned

RecurrentModel make_model(CpuLevel level, int n_threads, const Shape& shape) {
  RecurrentModel m;
  m.backend = open(level, n_threads);
  ops::Backend* b = m.backend.get();
  constexpr int64_t kRows = 200;
  m.inputs = {make_rows(*b, kRows, shape.qkv()), make_rows(*b, kRows, shape.n_value_heads),
              make_rows(*b, kRows, shape.n_value_heads)};
  m.out = make_rows(*b, kRows, int64_t{shape.n_value_heads} * shape.head_dim);
  const ops::DeltaRule rule = {.state_offset = kOffset,
                               .n_key_heads = shape.n_key_heads,
                               .n_value_heads = shape.n_value_heads,
                               .head_dim = shape.head_dim,
                               .a = *b->add_vector(decay_rates(shape.n_value_heads)),
                               .dt_bias = *b->add_vector(time_biases(shape.n_value_heads))};
  m.slot_floats = kOffset + static_cast<uint64_t>(shape.state());
  EXPECT_TRUE(b->set_state({.floats_per_slot = m.slot_floats, .max_slots = 8}).ok());
  m.op = [b, rule, in = m.inputs, out = m.out] { b->delta_rule(rule, in[0], in[1], in[2], out); };
  return m;
}

TEST_P(DeltaRule, FollowsTheRecurrenceForEveryShape) {
  for (const Shape shape : {Shape{1, 1, 1},
                            {2, 4, 16},
                            {1, 3, 20},
                            {2, 4, 72},
                            {3, 3, 128},
                            {2, 6, 128},
                            {1, 2, 200},
                            {1, 1, 256}}) {
    RecurrentModel m = make_model(GetParam(), 2, shape);
    for (const int64_t n : {1, 70}) {
      const Inputs x = make_inputs(shape, n, 30);
      const auto [want, want_state] = delta_reference(shape, x);
      for (const size_t chunk : {size_t{1}, size_t{70}}) {
        const std::vector<float> got = run_in_steps(m, x, chunk, true);
        const auto rows = std::span(got).first(want.size());
        EXPECT_LT(nmse(rows, want), kDeltaRule) << shape.head_dim << " values, rows " << n;
        const auto state = std::span(got).subspan(want.size() + kOffset);
        EXPECT_LT(nmse(state, want_state), kDeltaRule) << "state of " << shape.head_dim;
      }
    }
  }
}

TEST_P(DeltaRule, GivesTheSameBitsInAnySteps) {
  for (const Shape shape : {Shape{2, 4, 16}, {1, 3, 20}, {2, 4, 128}, {1, 2, 200}}) {
    expect_p1([&](int n_threads) { return make_model(GetParam(), n_threads, shape); },
              make_inputs(shape, 130, 40), make_inputs(shape, 41, 50), {1, 3, 63, 64, 65});
  }
}

TEST(DeltaRuleLevels, OfVectorsAgreeToTheBit) {
  for (const Shape shape : {Shape{1, 3, 20}, {2, 4, 128}, {1, 2, 200}}) {
    for (const size_t chunk : {size_t{1}, size_t{30}}) {
      expect_same_vector_levels([&](CpuLevel level) { return make_model(level, 2, shape); },
                                make_inputs(shape, 31, 45), chunk);
    }
  }
}

// exp(g) shows in a state that nothing is added to: keys of zero.
TEST_P(DeltaRule, DecaysByTheSoftplusOfAnyStep) {
  const auto backend = open(GetParam());
  const int64_t n = 61;
  std::vector<float> alpha(n);
  for (int64_t h = 0; h < n; ++h) alpha[static_cast<size_t>(h)] = static_cast<float>(h - 30) * 1.1f;
  const ops::Rows qkv = make_rows(*backend, 1, 2 + n);
  const ops::Rows al = make_rows(*backend, 1, n, alpha), be = make_rows(*backend, 1, n);
  const ops::Rows out = make_rows(*backend, 1, n);
  const ops::DeltaRule rule = {.n_key_heads = 1,
                               .n_value_heads = static_cast<int32_t>(n),
                               .head_dim = 1,
                               .a = *backend->add_vector(std::vector<float>(n, -1.0f)),
                               .dt_bias = *backend->add_vector(std::vector<float>(n, 0.25f))};
  ASSERT_TRUE(backend->set_state({.floats_per_slot = 61, .max_slots = 1}).ok());
  std::vector<float> state(n, 1.0f);
  backend->upload_slot(0, state);
  run_step(*backend, Step::plain(1), [&] { backend->delta_rule(rule, qkv, al, be, out); });
  backend->download_slot(0, state);
  for (size_t h = 0; h < static_cast<size_t>(n); ++h) {
    const double g = softplus(static_cast<double>(alpha[h]) + 0.25);
    EXPECT_NEAR(state[h] * std::exp(g), 1.0, 4e-7 * (1 + g)) << "alpha " << alpha[h];
  }
}

// Twelve layers' states, so that they come from memory as in a forward pass.
void time_rows(CpuLevel level, int n_threads, uint32_t n_rows, int n_layers) {
  const Shape shape{16, 48, 128};
  const auto b = open(level, n_threads);
  const Inputs x = make_inputs(shape, n_rows, 60);
  const ops::Rows qkv = make_rows(*b, n_rows, shape.qkv(), x[0]);
  const ops::Rows al = make_rows(*b, n_rows, shape.n_value_heads, x[1]);
  const ops::Rows be = make_rows(*b, n_rows, shape.n_value_heads, x[2]);
  const ops::Rows out = make_rows(*b, n_rows, int64_t{shape.n_value_heads} * shape.head_dim);
  ops::DeltaRule rule = {.n_key_heads = shape.n_key_heads,
                         .n_value_heads = shape.n_value_heads,
                         .head_dim = shape.head_dim,
                         .a = *b->add_vector(decay_rates(shape.n_value_heads)),
                         .dt_bias = *b->add_vector(time_biases(shape.n_value_heads))};
  const auto layer = static_cast<uint64_t>(shape.state());
  const auto all = static_cast<uint64_t>(n_layers);
  ASSERT_TRUE(b->set_state({.floats_per_slot = all * layer, .max_slots = 1}).ok());
  // Per value of the state: two multiply-adds, a product, a multiply-add; or read and written once.
  const double values = static_cast<double>(layer * all * n_rows);
  run_step(*b, Step::plain(n_rows), [&] {
    time_case(std::string(cpu_level_name(level)) + ".delta_rule 48x128x128 rows " +
                  std::to_string(n_rows) + " threads " + std::to_string(n_threads),
              n_rows == 1 ? values * 8 : values * 7, n_rows == 1 ? "GB/s" : "GFLOP/s", [&] {
                for (uint64_t i = 0; i < all; ++i) {
                  rule.state_offset = i * layer;
                  b->delta_rule(rule, qkv, al, be, out);
                }
              });
  });
}

TEST_P(DeltaRule, PerfOfRealRows) {
  if (!perf_enabled) return;
  for (const int n_threads : {1, 2}) {
    time_rows(GetParam(), n_threads, 1, 36);
    time_rows(GetParam(), n_threads, 256, 1);
  }
}

}  // namespace
}  // namespace okibi::ops_test
