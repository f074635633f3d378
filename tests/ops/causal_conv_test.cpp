// The causal convolution of a DeltaNet layer against its definition in double, and its state.
#include <cmath>

#include "ops/recurrent_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class CausalConv : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, CausalConv, testing::ValuesIn(host_levels()), level_test_name);

REFERENCE_CODE std::vector<double> conv_reference(std::span<const float> x,
                                                  std::span<const float> kernel, int64_t d,
                                                  int64_t n_taps) {
  const int64_t n = static_cast<int64_t>(x.size()) / d;
  std::vector<double> y(x.size());
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t c = 0; c < d; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < n_taps; ++j) {
        const int64_t s = t - (n_taps - 1) + j;
        if (s < 0) continue;
        sum += static_cast<double>(kernel[static_cast<size_t>(c * n_taps + j)]) *
               x[static_cast<size_t>(s * d + c)];
      }
      y[static_cast<size_t>(t * d + c)] = sum / (1 + std::exp(-sum));
    }
  }
  return y;
}

constexpr uint64_t kOffset = 5;  // state of this layer inside a slot: not aligned

RecurrentModel make_model(CpuLevel level, int n_threads, int64_t d, int64_t n_taps) {
  RecurrentModel m;
  m.backend = open(level, n_threads);
  m.inputs = {make_rows(*m.backend, 200, d)};
  m.out = make_rows(*m.backend, 200, d);
  const ops::Vector kernel = *m.backend->add_vector(random_floats(d * n_taps, 7));
  m.slot_floats = kOffset + static_cast<uint64_t>((n_taps - 1) * d);
  EXPECT_TRUE(m.backend->set_state({.floats_per_slot = m.slot_floats, .max_slots = 8}).ok());
  m.op = [b = m.backend.get(), in = m.inputs[0], out = m.out, kernel] {
    b->causal_conv(kOffset, in, kernel, out);
  };
  return m;
}

TEST_P(CausalConv, FollowsItsDefinitionForEveryTapCountAndTail) {
  for (const int64_t n_taps : {1, 2, 4, 7, 16}) {
    for (const int64_t d : {1, 16, 40, 576, 1030}) {
      RecurrentModel m = make_model(GetParam(), 2, d, n_taps);
      const Inputs x = {random_floats(19 * d, 8, 2.0f)};
      std::vector<float> got = run_in_steps(m, x, 19, true);
      // Behind the outputs: the slot, whose end is the last rows.
      for (int64_t i = 0; i < std::min<int64_t>(n_taps - 1, 19) * d; ++i) {
        ASSERT_EQ(got[got.size() - 1 - static_cast<size_t>(i)],
                  x[0][x[0].size() - 1 - static_cast<size_t>(i)]);
      }
      got.resize(static_cast<size_t>(19 * d));
      EXPECT_LT(nmse(got, conv_reference(x[0], random_floats(d * n_taps, 7), d, n_taps)),
                kShortConv)
          << d << " channels, " << n_taps << " taps";
    }
  }
}

TEST_P(CausalConv, GivesTheSameBitsInAnySteps) {
  for (const int64_t n_taps : {4, 7}) {
    expect_p1([&](int n_threads) { return make_model(GetParam(), n_threads, 1030, n_taps); },
              {random_floats(40 * 1030, 9)}, {random_floats(23 * 1030, 10)}, {1, 2, 3, 5, 7, 39});
  }
}

TEST(CausalConvLevels, OfVectorsAgreeToTheBit) {
  expect_same_vector_levels([](CpuLevel level) { return make_model(level, 2, 1030, 4); },
                            {random_floats(19 * 1030, 9)}, 7);
}

TEST_P(CausalConv, PerfOfRealRows) {
  const int64_t d = 10240;
  for (const uint32_t n : {1u, 512u}) {
    const auto backend = open(GetParam());
    const ops::Rows in = make_rows(*backend, n, d, random_floats(n * d, 1));
    const ops::Rows out = make_rows(*backend, n, d);
    const ops::Vector kernel = *backend->add_vector(random_floats(d * 4, 2));
    ASSERT_TRUE(backend->set_state({.floats_per_slot = 3 * 10240, .max_slots = 1}).ok());
    run_step(*backend, Step::plain(n), [&] {
      time_case(std::string(cpu_level_name(GetParam())) + ".causal_conv 10240x4 rows " +
                    std::to_string(n),
                static_cast<double>(n * d), "Gvalues/s",
                [&] { backend->causal_conv(0, in, kernel, out); });
    });
  }
}

}  // namespace
}  // namespace okibi::ops_test
