// A mixture of experts against its definition in double over the dequantised weights, and equal
// bits for a row whoever else wants its experts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/f16.h"
#include "ops/experts_layout.h"
#include "ops/matrices.h"
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

constexpr int64_t kModel = 256;
constexpr int32_t kExperts = 12, kUsed = 3;

class Moe : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, Moe,
                         testing::ValuesIn(cases_of({DType::kF32, DType::kQ8_0, DType::kQ4_K,
                                                     DType::kIQ3_XXS})),
                         type_case_name);

// Rows of d_ff that blocks of 256 do not fill: `down` then has blocks of 32, as in files.
int64_t d_ff(DType) {
  return 160;
}
DType down_type(DType type) {
  return type == DType::kF32 ? DType::kF32 : type == DType::kQ4_K ? DType::kIQ4_NL : DType::kQ8_0;
}

// The matrices of all experts, one after another.
Matrix make_experts(DType type, int64_t n_in, int64_t n_out, int32_t n, uint32_t seed) {
  if (type != DType::kIQ3_XXS) return make_matrix(type, n_in, n_out * n, seed);
  // Nothing writes this type: any bits are codes, and each block begins with a factor.
  Matrix m{type, n_in, n_out * n, {}, {}};
  std::mt19937 generator(seed);
  m.file.resize(row_bytes(type, static_cast<uint64_t>(n_in * m.n_out)));
  m.values.resize(static_cast<size_t>(n_in * m.n_out));
  for (uint8_t& byte : m.file) byte = static_cast<uint8_t>(generator());
  for (size_t at = 0; at < m.file.size(); at += traits_of(type).block_bytes) {
    const uint16_t d = float_to_f16(1e-3f + 1e-6f * static_cast<float>(generator() % 1000));
    std::memcpy(m.file.data() + at, &d, 2);
  }
  dequantize_row(type, m.file.data(), n_in * m.n_out, m.values.data());
  return m;
}

ops::WeightSource source_of(const Matrix& m, int32_t n) {
  ops::WeightSource s = m.source();
  s.n_out = m.n_out / n;
  s.n_matrices = n;
  return s;
}

Matrix expert_of(const Matrix& m, int32_t n, int32_t e) {
  Matrix one{m.type, m.n_in, m.n_out / n, {}, {}};
  const auto values = static_cast<size_t>(one.n_in * one.n_out);
  one.values.assign(m.values.begin() + static_cast<int64_t>(values) * e,
                    m.values.begin() + static_cast<int64_t>(values) * (e + 1));
  return one;
}

struct Layer {
  Matrix gate, up, down;
  int32_t n_experts;
};

Layer make_layer(DType type, int32_t n_experts) {
  const int64_t ff = d_ff(type);
  return {make_experts(type, kModel, ff, n_experts, 1),
          make_experts(type, kModel, ff, n_experts, 2),
          make_experts(down_type(type), ff, kModel, n_experts, 3), n_experts};
}

struct Model {
  std::unique_ptr<ops::Backend> backend;
  ops::Rows in, router, out;
  ops::Experts experts;
};

Model make_model(CpuLevel level, const Layer& l, int64_t max_rows, int n_threads = 1,
                 bool f32 = false, float scale = 1.0f) {
  Model m;
  m.backend = open(level, n_threads, f32 ? ActivationType::kF32 : ActivationType::kInt8);
  m.in = make_rows(*m.backend, max_rows, kModel);
  m.router = make_rows(*m.backend, max_rows, l.n_experts);
  m.out = make_rows(*m.backend, max_rows, kModel);
  m.experts.gate = *m.backend->add_weight(source_of(l.gate, l.n_experts));
  m.experts.up = *m.backend->add_weight(source_of(l.up, l.n_experts));
  m.experts.down = *m.backend->add_weight(source_of(l.down, l.n_experts));
  m.experts.n_used = kUsed;
  m.experts.scale = scale;
  EXPECT_TRUE(m.backend
                  ->set_experts({.max_rows = max_rows,
                                 .n_used = kUsed,
                                 .n_experts = l.n_experts,
                                 .d_model = kModel,
                                 .d_ff = l.gate.n_out / l.n_experts})
                  .ok());
  return m;
}

std::vector<float> run(Model& m, std::span<const float> x, std::span<const float> router) {
  const size_t n = x.size() / static_cast<size_t>(kModel);
  write_rows(*m.backend, m.in, x);
  write_rows(*m.backend, m.router, router);
  run_step(*m.backend, Step::plain(static_cast<uint32_t>(n)),
           [&] { m.backend->moe(m.in, m.router, m.experts, m.out); });
  return read_rows(*m.backend, m.out, static_cast<int64_t>(n));
}

// Experts of a row, the likeliest first, ties to the lower one.
std::vector<int32_t> chosen(std::span<const float> router) {
  std::vector<int32_t> order(router.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return router[static_cast<size_t>(a)] > router[static_cast<size_t>(b)];
  });
  order.resize(kUsed);
  return order;
}

std::vector<double> reference(const Layer& l, std::span<const float> x,
                              std::span<const float> router, double scale) {
  const int32_t n = l.n_experts;
  std::vector<double> y;
  for (size_t r = 0; r * kModel < x.size(); ++r) {
    const auto row = x.subspan(r * kModel, kModel);
    const auto scores = router.subspan(r * static_cast<size_t>(n), static_cast<size_t>(n));
    std::vector<double> sum(kModel);
    double total = 0;
    for (const int32_t e : chosen(scores))
      total += std::exp(double{scores[static_cast<size_t>(e)]});
    for (const int32_t e : chosen(scores)) {
      const std::vector<double> gate = product_reference(expert_of(l.gate, n, e), row);
      const std::vector<double> up = product_reference(expert_of(l.up, n, e), row);
      const Matrix down = expert_of(l.down, n, e);
      const double w = scale * std::exp(double{scores[static_cast<size_t>(e)]}) / total;
      for (int64_t o = 0; o < kModel; ++o) {
        double dot = 0;
        for (size_t i = 0; i < gate.size(); ++i) {
          dot += double{down.values[static_cast<size_t>(o) * gate.size() + i]} * gate[i] /
                 (1 + std::exp(-gate[i])) * up[i];
        }
        sum[static_cast<size_t>(o)] += w * dot;
      }
    }
    y.insert(y.end(), sum.begin(), sum.end());
  }
  return y;
}

TEST_P(Moe, FollowsItsDefinition) {
  const Layer l = make_layer(GetParam().type, kExperts);
  const bool is_float = GetParam().type == DType::kF32;
  for (const bool f32 : {false, true}) {
    for (const int64_t n : {1, 2, 30}) {
      Model m = make_model(GetParam().level, l, 30, 2, f32, 1.75f);
      const std::vector<float> x = random_floats(n * kModel, 4),
                               router = random_floats(n * kExperts, 5);
      EXPECT_LT(nmse(run(m, x, router), reference(l, x, router, 1.75)),
                f32 || is_float ? kExpertsFloat : kExpertsQuantized)
          << n << " rows";
    }
  }
}

TEST_P(Moe, GivesARowTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  const Layer l = make_layer(GetParam().type, kExperts);
  const std::vector<float> x = random_floats(64 * kModel, 6);
  std::vector<float> router = random_floats(64 * kExperts, 7);
  // Everybody likes expert 2: one long group beside short ones.
  for (size_t r = 0; r < 64; ++r) router[r * kExperts + 2] += 3.0f;
  std::vector<float> expected;
  for (const int n_threads : {1, 2, 3}) {
    Model m = make_model(GetParam().level, l, 64, n_threads);
    const std::vector<float> all = run(m, x, router);
    if (expected.empty()) expected = all;
    EXPECT_TRUE(all == expected) << n_threads << " threads";
    for (const size_t n : {1, 2, 3, 7, 17, 40}) {
      for (const size_t first : {size_t{0}, size_t{64} - n}) {
        const std::vector<float> part =
            run(m, std::span(x).subspan(first * kModel, n * kModel),
                std::span(router).subspan(first * kExperts, n * kExperts));
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               expected.begin() + static_cast<int64_t>(first * kModel)))
            << n << " rows from " << first << ", " << n_threads << " threads";
      }
    }
  }
}

TEST_P(Moe, GivesTheSameBitsInOneWaveAndInSeveral) {
  const Layer l = make_layer(GetParam().type, kExperts);
  const int64_t n = 520;  // more pairs than a wave takes
  ASSERT_LT(ops::experts_wave_pairs({n, kUsed, kExperts, kModel, 160}), n * kUsed);
  Model m = make_model(GetParam().level, l, n, 2);
  const std::vector<float> x = random_floats(n * kModel, 8),
                           router = random_floats(n * kExperts, 9);
  const std::vector<float> all = run(m, x, router);
  for (const size_t first : {0, 3, 519}) {
    const std::vector<float> one = run(m, std::span(x).subspan(first * kModel, kModel),
                                       std::span(router).subspan(first * kExperts, kExperts));
    EXPECT_TRUE(
        std::equal(one.begin(), one.end(), all.begin() + static_cast<int64_t>(first * kModel)))
        << first;
  }
  // All rows want the same experts.
  std::vector<float> same;
  for (int64_t r = 0; r < n; ++r)
    same.insert(same.end(), router.begin(), router.begin() + kExperts);
  const std::vector<float> crowd = run(m, x, same);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + kModel, crowd.begin()));
}

TEST_P(Moe, SettlesTiesForTheLowerExpertAndCountsNobodyElse) {
  const Layer l = make_layer(GetParam().type, kExperts);
  Model m = make_model(GetParam().level, l, 4);
  const std::vector<float> x = random_floats(kModel, 10);
  std::vector<float> ties(kExperts, 0.25f), clear(kExperts, -2.0f);
  std::fill(clear.begin(), clear.begin() + kUsed, 0.25f);
  EXPECT_TRUE(run(m, x, ties) == run(m, x, clear)) << "experts 0, 1, 2 for a third each";
  ties[7] = 0.5f;
  std::vector<float> other(kExperts, -90.0f);
  other[0] = other[1] = 0.25f;
  other[7] = 0.5f;
  const std::vector<float> got = run(m, x, ties);
  EXPECT_LT(nmse(got, reference(l, x, ties, 1)),
            GetParam().type == DType::kF32 ? kExpertsFloat : kExpertsQuantized);
  EXPECT_LT(nmse(got, reference(l, x, other, 1)),
            GetParam().type == DType::kF32 ? kExpertsFloat : kExpertsQuantized);
  // Scores as far apart as float32 goes.
  std::vector<float> wild(kExperts, -3e38f);
  wild[5] = 3e38f;
  for (const float v : run(m, x, wild)) EXPECT_TRUE(std::isfinite(v));
}

TEST(MoeWeights, SayHowManyExpertsTheyHoldAndWhatTheyTake) {
  const auto backend = open(host_levels().back());
  const Layer l = make_layer(DType::kQ8_0, kExperts);
  const ops::WeightSource source = source_of(l.gate, kExperts);
  ops::WeightSource one = source;
  one.n_matrices = 1;
  EXPECT_GE(backend->packed_bytes(source), kExperts * (backend->packed_bytes(one) - 64));
  const ops::Weight w = *backend->add_weight(source);
  EXPECT_EQ(w.n_matrices, kExperts);
  EXPECT_EQ(w.n_out, 160);
  EXPECT_NE(backend->describe_weight(w).find("x 12"), std::string::npos);
  const ops::ExpertsConfig config = {512, 4, 32, 1024, 640};
  EXPECT_GE(ops::experts_bytes(config), uint64_t{512 * 4 * 1024 * 4});
}

// Layers of which each token reads other experts, more than caches hold.
constexpr int64_t kPerfModel = 1024, kPerfFf = 640, kPerfRows = 512;
constexpr int32_t kPerfExperts = 32, kPerfUsed = 4, kPerfLayers = 8;
constexpr double kPerfOps = 2.0 * 3 * kPerfModel * kPerfFf;  // of a pair

struct PerfCase {
  const char* name;
  DType gate_type, down_type;
  Matrix gate, down;  // of all experts
};

void time_experts(ops::Backend& backend, const PerfCase& c, const std::string& name) {
  ops::Experts layers[kPerfLayers];
  for (ops::Experts& e : layers) {
    e.gate = *backend.add_weight(source_of(c.gate, kPerfExperts));
    e.up = *backend.add_weight(source_of(c.gate, kPerfExperts));
    e.down = *backend.add_weight(source_of(c.down, kPerfExperts));
    e.n_used = kPerfUsed;
  }
  const ops::Rows in =
      make_rows(backend, kPerfRows, kPerfModel, random_floats(kPerfRows * kPerfModel, 3));
  const ops::Rows out = make_rows(backend, kPerfRows, kPerfModel);
  const std::vector<float> scores = random_floats(kPerfRows * kPerfExperts, 4);
  const ops::Rows router = make_rows(backend, kPerfRows, kPerfExperts, scores);
  ASSERT_TRUE(backend.set_experts({kPerfRows, kPerfUsed, kPerfExperts, kPerfModel, kPerfFf}).ok());
  const double pair_bytes = static_cast<double>(c.gate.file.size() * 2 + c.down.file.size()) /
                            static_cast<double>(kPerfExperts);
  // Tokens one after the other, as many as make the caches forget.
  constexpr int kTokens = 16;
  size_t token = 0;
  run_step(backend, Step::plain(1), [&] {
    const double work = pair_bytes * kPerfUsed * kPerfLayers * kTokens;
    time_case(name + " 16 tokens, 8 layers", work, "GB/s", [&] {
      for (int t = 0; t < kTokens; ++t, token = (token + 1) % kPerfRows) {
        backend.write(router, 0, std::span(scores).subspan(token * kPerfExperts, kPerfExperts));
        for (const ops::Experts& e : layers) backend.moe(in, router, e, out);
      }
    });
  });
  size_t layer = 0;
  for (const size_t n_layers : {size_t{1}, size_t{kPerfLayers}}) {
    run_step(backend, Step::plain(kPerfRows), [&] {
      time_case(name + " rows 512, layers " + std::to_string(n_layers),
                kPerfOps * kPerfUsed * kPerfRows, "GOP/s",
                [&] { backend.moe(in, router, layers[layer++ % n_layers], out); });
    });
  }
}

// The same products as plain ones of 64 rows, one matrix after the other; and as one for all rows.
void time_plain(ops::Backend& backend, const PerfCase& c, const std::string& name) {
  constexpr int64_t kPairs = kPerfRows * kPerfUsed;
  std::vector<ops::Weight> gate, up, down;
  for (int32_t e = 0; e < kPerfExperts; ++e) {
    ops::WeightSource g = source_of(c.gate, kPerfExperts), d = source_of(c.down, kPerfExperts);
    g.n_matrices = d.n_matrices = 1;
    g.data += static_cast<size_t>(e) * c.gate.file.size() / kPerfExperts;
    d.data += static_cast<size_t>(e) * c.down.file.size() / kPerfExperts;
    gate.push_back(*backend.add_weight(g));
    up.push_back(*backend.add_weight(g));
    down.push_back(*backend.add_weight(d));
  }
  const ops::Rows x = make_rows(backend, kPairs, kPerfModel, random_floats(kPairs * kPerfModel, 5));
  const ops::Rows h[] = {make_rows(backend, kPairs, kPerfFf), make_rows(backend, kPairs, kPerfFf)};
  const ops::Rows y = make_rows(backend, kPairs, kPerfModel);
  for (const size_t n_matrices : {size_t{kPerfExperts}, size_t{1}}) {
    const int64_t n = kPairs / static_cast<int64_t>(n_matrices);
    run_step(backend, Step::plain(static_cast<uint32_t>(n)), [&] {
      time_case(name + " plain rows " + std::to_string(n), kPerfOps * kPairs, "GOP/s", [&] {
        for (size_t e = 0; e < n_matrices; ++e) {
          const ops::Weight both[] = {gate[e], up[e]};
          backend.project(x, both, h);
          backend.silu_mul(h[0], h[1], h[0]);
          backend.project(h[0], {&down[e], 1}, {&y, 1});
        }
      });
    });
  }
}

TEST(MoePerf, OfRealShapes) {
  if (!perf_enabled) return;
  for (PerfCase c : {PerfCase{"Q4_K/Q8_0", DType::kQ4_K, DType::kQ8_0, {}, {}},
                     PerfCase{"Q4_K/IQ4_NL", DType::kQ4_K, DType::kIQ4_NL, {}, {}}}) {
    c.gate = make_matrix(c.gate_type, kPerfModel, kPerfFf * kPerfExperts, 1);
    c.down = make_matrix(c.down_type, kPerfFf, kPerfModel * kPerfExperts, 2);
    for (const CpuLevel level : host_levels()) {
      if (level == CpuLevel::kReference) continue;
      for (const int n_threads : {1, 2}) {
        const std::string name = std::string(cpu_level_name(level)) + "." + c.name + " threads " +
                                 std::to_string(n_threads);
        time_experts(*open(level, n_threads), c, name);
        time_plain(*open(level, n_threads), c, name);
      }
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
