// Mixing n-grams into the streams against the definition in double, and its state across steps.
#include <cmath>

#include "ops/recurrent_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class NgramMix : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, NgramMix, testing::ValuesIn(host_levels()), level_test_name);

constexpr float kEps = 1e-6f;

struct Shape {
  int64_t d;
  int32_t n_streams, n_taps, dilation;
  int64_t all() const { return d * n_streams; }
  int64_t history() const { return int64_t{n_taps - 1} * dilation; }
};

struct Parameters {
  std::vector<float> key_norm, query_norm, conv_norm, kernel;
};
Parameters make_parameters(const Shape& s) {
  return {random_floats(s.all(), 3), random_floats(s.all(), 4), random_floats(s.all(), 5),
          random_floats(s.all() * s.n_taps, 6)};
}

// key, value, streams
Inputs make_inputs(const Shape& s, int64_t n_rows, uint32_t seed) {
  return {random_floats(n_rows * s.all(), seed), random_floats(n_rows * s.d, seed + 1),
          random_floats(n_rows * s.all(), seed + 2)};
}

REFERENCE_CODE std::vector<double> normed(std::span<const double> x, std::span<const float> gamma) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse * gamma[i];
  return y;
}

REFERENCE_CODE double gate_of(double dot, double d) {
  const double x = dot / std::sqrt(d);
  const double root = std::sqrt(std::max(std::abs(x), 1e-6));
  return 1 / (1 + std::exp(x > 0 ? -root : x < 0 ? root : 0.0));
}

REFERENCE_CODE std::vector<double> mix_reference(const Shape& s, const Inputs& x) {
  const Parameters p = make_parameters(s);
  const auto d = static_cast<size_t>(s.d), all = static_cast<size_t>(s.all());
  const auto n_taps = static_cast<size_t>(s.n_taps), dilation = static_cast<size_t>(s.dilation);
  const size_t n = x[1].size() / d;
  std::vector<double> nn(n * all), out(x[2].begin(), x[2].end());
  for (size_t t = 0; t < n; ++t) {
    for (size_t at = 0; at < all; at += d) {
      const std::vector<double> key(&x[0][t * all + at], &x[0][t * all + at] + d);
      const std::vector<double> stream(&x[2][t * all + at], &x[2][t * all + at] + d);
      const auto k = normed(key, std::span(p.key_norm).subspan(at, d));
      const auto q = normed(stream, std::span(p.query_norm).subspan(at, d));
      double dot = 0;
      for (size_t i = 0; i < d; ++i) dot += k[i] * q[i];
      const double w = gate_of(dot, static_cast<double>(d));
      std::vector<double> value(&x[1][t * d], &x[1][t * d] + d);
      for (double& v : value) v *= w;
      const auto row = normed(value, std::span(p.conv_norm).subspan(at, d));
      std::copy(row.begin(), row.end(), &nn[t * all + at]);
      for (size_t i = 0; i < d; ++i) out[t * all + at + i] += value[i];
    }
    for (size_t c = 0; c < all; ++c) {
      double sum = 0;
      for (size_t j = 0; j < n_taps; ++j) {
        const size_t back = dilation * (n_taps - 1 - j);
        if (back <= t) sum += p.kernel[c * n_taps + j] * nn[(t - back) * all + c];
      }
      out[t * all + c] += sum / (1 + std::exp(-sum));
    }
  }
  return out;
}

constexpr uint64_t kOffset = 7;  // state inside a slot: not aligned

RecurrentModel make_model(CpuLevel level, int n_threads, const Shape& s) {
  RecurrentModel m;
  m.backend = open(level, n_threads);
  ops::Backend* b = m.backend.get();
  constexpr int64_t kRows = 64;
  m.inputs = {make_rows(*b, kRows, s.all()), make_rows(*b, kRows, s.d),
              make_rows(*b, kRows, s.all())};
  m.out = m.inputs[2];
  const Parameters p = make_parameters(s);
  const ops::NgramMix mix = {.state_offset = kOffset,
                             .n_streams = s.n_streams,
                             .n_taps = s.n_taps,
                             .dilation = s.dilation,
                             .key_norm = *b->add_vector(p.key_norm),
                             .query_norm = *b->add_vector(p.query_norm),
                             .conv_norm = *b->add_vector(p.conv_norm),
                             .kernel = *b->add_vector(p.kernel),
                             .eps = kEps};
  m.slot_floats = kOffset + static_cast<uint64_t>(s.history() * s.all());
  EXPECT_TRUE(b->set_state({.floats_per_slot = m.slot_floats, .max_slots = 8}).ok());
  m.op = [b, mix, in = m.inputs] { b->ngram_mix(mix, in[0], in[1], in[2]); };
  return m;
}

TEST_P(NgramMix, FollowsItsDefinitionForEveryShape) {
  for (const Shape s :
       {Shape{64, 4, 4, 3}, {1, 1, 1, 1}, {20, 3, 2, 5}, {1030, 2, 4, 3}, {600, 16, 3, 1}}) {
    RecurrentModel m = make_model(GetParam(), 2, s);
    const Inputs x = make_inputs(s, 25, 11);
    const std::vector<double> want = mix_reference(s, x);
    for (const size_t chunk : {size_t{1}, size_t{4}, size_t{25}}) {
      const std::vector<float> got = run_in_steps(m, x, chunk, true);
      EXPECT_LT(nmse(std::span(got).first(want.size()), want), kNgramMix)
          << s.d << " values, steps of " << chunk;
    }
  }
}

TEST_P(NgramMix, OpensHalfWhereKeyAndStreamSayNothing) {
  const Shape s{32, 2, 1, 1};
  RecurrentModel m = make_model(GetParam(), 1, s);
  Inputs x = make_inputs(s, 2, 12);
  std::fill(x[0].begin(), x[0].end(), 0.0f);
  const std::vector<float> got = run_in_steps(m, x, 2, true);
  const std::vector<double> want = mix_reference(s, x);
  EXPECT_LT(nmse(std::span(got).first(want.size()), want), kNgramMix);
}

TEST_P(NgramMix, GivesTheSameBitsInAnySteps) {
  for (const Shape s : {Shape{64, 4, 4, 3}, {1030, 2, 4, 3}}) {
    expect_p1([&](int n_threads) { return make_model(GetParam(), n_threads, s); },
              make_inputs(s, 31, 13), make_inputs(s, 18, 14), {1, 2, 3, 8, 9, 10, 30});
  }
}

TEST(NgramMixLevels, OfVectorsAgreeToTheBit) {
  const Shape s{1030, 2, 4, 3};
  expect_same_vector_levels([&](CpuLevel level) { return make_model(level, 2, s); },
                            make_inputs(s, 19, 16), 7);
}

TEST_P(NgramMix, PerfOfRealRows) {
  const Shape s{2560, 4, 4, 3};
  for (const uint32_t n : {1u, 64u}) {
    RecurrentModel m = make_model(GetParam(), 1, s);
    const Inputs x = make_inputs(s, n, 15);
    for (size_t i = 0; i < 3; ++i) write_rows(*m.backend, m.inputs[i], x[i]);
    run_step(*m.backend, Step::plain(n), [&] {
      time_case(
          std::string(cpu_level_name(GetParam())) + ".ngram_mix 4x2560 rows " + std::to_string(n),
          static_cast<double>(n * s.all()), "Gvalues/s", m.op);
    });
  }
}

}  // namespace
}  // namespace okibi::ops_test
