// Residual streams and gates against their definitions in double, and promise P1.
#include <cmath>

#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class Streams : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, Streams, testing::ValuesIn(host_levels()), level_test_name);

constexpr float kEps = 1e-6f;

REFERENCE_CODE double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The buffers that an operation takes, of the columns and values given; the last is read.
struct Case {
  std::vector<int64_t> cols;
  std::function<void(ops::Backend&, std::span<const ops::Rows>, ops::Vector gamma)> op;
  int64_t n_gamma = 1;
};
ops::Vector make_gamma(ops::Backend& backend, const Case& c) {
  return *backend.add_vector(random_floats(c.n_gamma, 1));
}

std::vector<float> run(CpuLevel level, int n_threads, const Case& c,
                       const std::vector<std::vector<float>>& values) {
  const auto backend = open(level, n_threads);
  const auto n = static_cast<int64_t>(values[0].size()) / c.cols[0];
  std::vector<ops::Rows> buffers;
  for (size_t i = 0; i < c.cols.size(); ++i) {
    buffers.push_back(make_rows(*backend, n, c.cols[i], values[i]));
  }
  const ops::Vector gamma = make_gamma(*backend, c);
  run_step(*backend, Step::plain(static_cast<uint32_t>(n)),
           [&] { c.op(*backend, buffers, gamma); });
  return read_rows(*backend, buffers.back(), n);
}

std::vector<std::vector<float>> make_values(const Case& c, int64_t n, float deviation = 2.0f) {
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < c.cols.size(); ++i) {
    values.push_back(random_floats(n * c.cols[i], 70 + static_cast<uint32_t>(i), deviation));
  }
  return values;
}

// Every row alone gives what all together give, on any number of threads.
void expect_p1(CpuLevel level, const Case& c, int64_t n) {
  const auto values = make_values(c, n);
  const std::vector<float> want = run(level, 1, c, values);
  for (const int n_threads : {2, 3}) EXPECT_EQ(run(level, n_threads, c, values), want);
  const auto cols = static_cast<size_t>(c.cols.back());
  for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
    std::vector<std::vector<float>> row;
    for (size_t i = 0; i < c.cols.size(); ++i) {
      const auto width = static_cast<size_t>(c.cols[i]);
      row.emplace_back(&values[i][r * width], &values[i][r * width] + width);
    }
    const auto all = std::span(want).subspan(r * cols, cols);
    EXPECT_EQ(run(level, 2, c, row), std::vector<float>(all.begin(), all.end())) << "row " << r;
  }
}

Case norm_groups(int64_t d, int32_t n_groups, bool in_place) {
  return {std::vector<int64_t>(in_place ? 1 : 2, d * n_groups),
          [=](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector gamma) {
            b.rms_norm_groups(rows[0], gamma, n_groups, kEps, rows.back());
          },
          d * n_groups};
}
Case gated_norm(int64_t head_dim, int64_t n_heads, ops::GateKind kind) {
  return {{head_dim * n_heads, head_dim * n_heads},
          [=](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector gamma) {
            b.gated_norm(rows[0], kind, gamma, kEps, rows[1]);
          },
          head_dim};
}
Case mix(int64_t d, int64_t n_streams) {
  return {{d * n_streams, d * n_streams, d},
          [](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.mix_streams(rows[0], rows[1], rows[2]);
          }};
}
Case inject(int64_t d, int64_t n_streams) {
  return {{d, n_streams, d * n_streams},
          [](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.inject_streams(rows[0], rows[1], rows[2]);
          }};
}
Case spread(int64_t d, int64_t n_streams) {
  return {{d, d * n_streams}, [](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.spread_streams(rows[0], rows[1]);
          }};
}
Case silu(int64_t d, float scale) {
  return {{d}, [=](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.silu(rows[0], scale);
          }};
}
Case sigmoid_mul(int64_t d) {
  return {{d, d}, [](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.sigmoid_mul(rows[0], rows[1]);
          }};
}
Case add_gated(int64_t d) {
  return {{d, 1, d}, [](ops::Backend& b, std::span<const ops::Rows> rows, ops::Vector) {
            b.add_gated(rows[0], rows[1], rows[2]);
          }};
}

constexpr int64_t kRows = 3;

// want(values, row, column) of the last buffer.
void expect_near(
    CpuLevel level, const Case& c,
    const std::function<double(const std::vector<std::vector<float>>&, size_t, size_t)>& want) {
  for (const float deviation : {1.0f, 30.0f}) {
    const auto values = make_values(c, kRows, deviation);
    std::vector<double> expected;
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < static_cast<size_t>(c.cols.back()); ++i) {
        expected.push_back(want(values, r, i));
      }
    }
    EXPECT_LT(nmse(run(level, 2, c, values), expected), kStreams)
        << c.cols.back() << " columns, deviation " << deviation;
  }
}

// 1 / sqrt(mean of the d values at x squared + eps)
REFERENCE_CODE double inverse_rms(const float* x, size_t d) {
  double squares = 0;
  for (size_t i = 0; i < d; ++i) squares += static_cast<double>(x[i]) * x[i];
  return 1 / std::sqrt(squares / static_cast<double>(d) + kEps);
}

TEST_P(Streams, NormsGroupsApart) {
  for (const size_t d : {1u, 20u, 64u, 2560u}) {
    for (const bool in_place : {false, true}) {
      const std::vector<float> gamma = random_floats(static_cast<int64_t>(4 * d), 1);
      expect_near(GetParam(), norm_groups(static_cast<int64_t>(d), 4, in_place),
                  [&](const auto& v, size_t r, size_t i) {
                    const float* row = v[0].data() + r * 4 * d;
                    return row[i] * gamma[i] * inverse_rms(row + i / d * d, d);
                  });
    }
  }
}

TEST_P(Streams, NormsGroupsAsRmsNormNormsRows) {
  const auto b = open(GetParam());
  const int64_t d = 1030;
  const ops::Rows in = make_rows(*b, 3, d, random_floats(3 * d, 2));
  const ops::Rows one = make_rows(*b, 3, d), other = make_rows(*b, 3, d);
  const ops::Vector gamma = *b->add_vector(random_floats(d, 3));
  run_step(*b, Step::plain(3), [&] {
    b->rms_norm(in, gamma, kEps, one);
    b->rms_norm_groups(in, gamma, 1, kEps, other);
  });
  EXPECT_EQ(read_rows(*b, one, 3), read_rows(*b, other, 3));
}

TEST_P(Streams, NormsAndGatesHeads) {
  for (const size_t d : {1u, 16u, 20u, 128u}) {
    const std::vector<float> gamma = random_floats(static_cast<int64_t>(d), 1);
    for (const auto kind : {ops::GateKind::kSigmoid, ops::GateKind::kSilu}) {
      expect_near(GetParam(), gated_norm(static_cast<int64_t>(d), 6, kind),
                  [&](const auto& v, size_t r, size_t i) {
                    const float* row = v[1].data() + r * 6 * d;
                    const double g = v[0][r * 6 * d + i];
                    return row[i] * gamma[i % d] * inverse_rms(row + i / d * d, d) * sigmoid(g) *
                           (kind == ops::GateKind::kSilu ? g : 1.0);
                  });
    }
  }
}

TEST_P(Streams, MixesInjectsAndSpreads) {
  for (const size_t d : {1u, 20u, 64u, 1300u, 2560u}) {
    for (const size_t c : {1u, 3u, 4u, 16u}) {
      const auto nd = static_cast<int64_t>(d), nc = static_cast<int64_t>(c);
      expect_near(GetParam(), mix(nd, nc), [&](const auto& v, size_t r, size_t i) {
        double sum = 0;
        for (size_t s = r * c; s < (r + 1) * c; ++s) {
          sum += sigmoid(v[1][s * d + i]) * v[0][s * d + i];
        }
        return sum / static_cast<double>(c);
      });
      expect_near(GetParam(), inject(nd, nc), [&](const auto& v, size_t r, size_t i) {
        const double strength = 2 * sigmoid(v[1][r * c + i / d] / static_cast<double>(c));
        return v[2][r * c * d + i] + strength * v[0][r * d + i % d];
      });
      expect_near(GetParam(), spread(nd, nc), [&](const auto& v, size_t r, size_t i) {
        return static_cast<double>(v[0][r * d + i % d]);
      });
    }
  }
}

TEST_P(Streams, OpensGates) {
  for (const size_t d : {1u, 20u, 320u, 6144u}) {
    const auto n = static_cast<int64_t>(d);
    expect_near(GetParam(), silu(n, 0.25f), [&](const auto& v, size_t r, size_t i) {
      const double x = v[0][r * d + i] * 0.25;
      return x * sigmoid(x);
    });
    expect_near(GetParam(), sigmoid_mul(n), [&](const auto& v, size_t r, size_t i) {
      return v[1][r * d + i] * sigmoid(v[0][r * d + i]);
    });
    expect_near(GetParam(), add_gated(n), [&](const auto& v, size_t r, size_t i) {
      return v[2][r * d + i] + sigmoid(v[1][r]) * v[0][r * d + i];
    });
  }
}

TEST_P(Streams, GiveARowTheSameBitsInAnyCompany) {
  for (const int64_t d : {64, 1030, 2560}) {
    expect_p1(GetParam(), norm_groups(d, 4, true), 5);
    expect_p1(GetParam(), gated_norm(d, 3, ops::GateKind::kSilu), 5);
    expect_p1(GetParam(), mix(d, 4), 5);
    expect_p1(GetParam(), inject(d, 4), 5);
    expect_p1(GetParam(), spread(d, 4), 5);
    expect_p1(GetParam(), silu(d, 0.25f), 5);
    expect_p1(GetParam(), sigmoid_mul(d), 5);
    expect_p1(GetParam(), add_gated(d), 5);
  }
}

// The vector levels do the same operations in the same order.
TEST(StreamLevels, OfVectorsAgreeToTheBit) {
  const std::vector<CpuLevel> levels = host_levels();
  for (const CpuLevel level : levels) {
    if (level <= CpuLevel::kAvx2) continue;
    for (const Case& c : {norm_groups(1030, 4, true), mix(1030, 4), inject(1030, 4),
                          gated_norm(20, 6, ops::GateKind::kSigmoid), silu(1030, 0.25f)}) {
      const auto values = make_values(c, 3);
      EXPECT_EQ(run(level, 1, c, values), run(CpuLevel::kAvx2, 1, c, values));
    }
  }
}

TEST_P(Streams, PerfOfRealRows) {
  if (!perf_enabled) return;
  const std::vector<std::pair<std::string, Case>> cases = {
      {"rms_norm_groups 4x2560", norm_groups(2560, 4, false)},
      {"mix_streams 4x2560", mix(2560, 4)},
      {"inject_streams 4x2560", inject(2560, 4)},
      {"gated_norm 48x128", gated_norm(128, 48, ops::GateKind::kSigmoid)},
      {"sigmoid_mul 6144", sigmoid_mul(6144)}};
  for (const auto& [name, c] : cases) {
    for (const int64_t n : {1, 256}) {
      const auto backend = open(GetParam());
      const auto values = make_values(c, n);
      std::vector<ops::Rows> buffers;
      int64_t widest = 0;
      for (size_t i = 0; i < c.cols.size(); ++i) {
        buffers.push_back(make_rows(*backend, n, c.cols[i], values[i]));
        widest = std::max(widest, c.cols[i]);
      }
      const ops::Vector gamma = make_gamma(*backend, c);
      run_step(*backend, Step::plain(static_cast<uint32_t>(n)), [&] {
        time_case(
            std::string(cpu_level_name(GetParam())) + "." + name + " rows " + std::to_string(n),
            static_cast<double>(n * widest), "Gvalues/s", [&] { c.op(*backend, buffers, gamma); });
      });
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
