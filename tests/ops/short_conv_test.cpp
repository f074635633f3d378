// The gated short convolution against its definition in double, and its state across steps.
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

class ShortConv : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, ShortConv, testing::ValuesIn(host_levels()), level_test_name);

// The whole sequence from an empty state.
std::vector<double> conv_reference(std::span<const float> bcx, std::span<const float> kernel,
                                   int64_t d, int64_t n_taps) {
  const int64_t n = static_cast<int64_t>(bcx.size()) / (3 * d);
  std::vector<double> y(static_cast<size_t>(n * d));
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t c = 0; c < d; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < n_taps; ++j) {
        const int64_t s = t - (n_taps - 1) + j;
        if (s < 0) continue;
        const size_t row = static_cast<size_t>(s * 3 * d);
        const double u = static_cast<double>(bcx[row + static_cast<size_t>(c)]) *
                         bcx[row + static_cast<size_t>(2 * d + c)];
        sum += kernel[static_cast<size_t>(c * n_taps + j)] * u;
      }
      y[static_cast<size_t>(t * d + c)] = bcx[static_cast<size_t>(t * 3 * d + d + c)] * sum;
    }
  }
  return y;
}

struct Model {
  std::unique_ptr<ops::Backend> backend;
  ops::Rows bcx, out;
  ops::Vector kernel;
};

constexpr int64_t kOffset = 5;  // state of this layer inside a slot: not aligned

Model make_model(CpuLevel level, int n_threads, int64_t d, int64_t n_taps) {
  Model m;
  m.backend = open(level, n_threads);
  m.bcx = make_rows(*m.backend, 64, 3 * d);
  m.out = make_rows(*m.backend, 64, d);
  m.kernel = *m.backend->add_vector(random_floats(d * n_taps, 7));
  EXPECT_TRUE(m.backend
                  ->set_state({.floats_per_slot = static_cast<uint64_t>(kOffset + (n_taps - 1) * d),
                               .max_slots = 8})
                  .ok());
  return m;
}

// Feeds `bcx` in chunks of the given size, alternating two slots or staying in one.
std::vector<float> run_chunks(Model& m, std::span<const float> bcx, size_t chunk, bool in_place) {
  const auto cols = static_cast<size_t>(m.bcx.cols);
  std::vector<float> y;
  ops::SlotId slot = 3;
  m.backend->zero_slot(slot);
  for (size_t t = 0; t * cols < bcx.size(); t += chunk) {
    const size_t n = std::min(chunk, bcx.size() / cols - t);
    write_rows(*m.backend, m.bcx, bcx.subspan(t * cols, n * cols));
    const ops::SlotId next = in_place ? slot : (slot == 3 ? 6 : 3);
    run_step(*m.backend,
             Step({{.n_past = static_cast<uint32_t>(t),
                    .n_rows = static_cast<uint32_t>(n),
                    .src_slot = slot,
                    .dst_slot = next}}),
             [&] { m.backend->short_conv(kOffset, m.bcx, m.kernel, m.out); });
    const std::vector<float> rows = read_rows(*m.backend, m.out, static_cast<int64_t>(n));
    y.insert(y.end(), rows.begin(), rows.end());
    slot = next;
  }
  return y;
}

TEST_P(ShortConv, FollowsItsDefinitionForEveryTapCountAndTail) {
  for (const int64_t n_taps : {1, 2, 3, 4, 7}) {
    for (const int64_t d : {1, 16, 40, 576, 1030}) {
      Model m = make_model(GetParam(), 2, d, n_taps);
      const std::vector<float> bcx = random_floats(11 * 3 * d, 8);
      EXPECT_LT(nmse(run_chunks(m, bcx, 11, true),
                     conv_reference(bcx, random_floats(d * n_taps, 7), d, n_taps)),
                kShortConv)
          << d << " channels, " << n_taps << " taps";
    }
  }
}

TEST_P(ShortConv, GivesTheSameBitsInChunksInPlaceAndAcrossSlots) {
  Model m = make_model(GetParam(), 2, 1030, 3);
  const std::vector<float> bcx = random_floats(40 * 3 * 1030, 9);
  const std::vector<float> whole = run_chunks(m, bcx, 40, true);
  for (const size_t chunk : {1, 2, 3, 7, 39}) {
    EXPECT_EQ(run_chunks(m, bcx, chunk, true), whole) << chunk;
    EXPECT_EQ(run_chunks(m, bcx, chunk, false), whole) << chunk;
  }
}

TEST_P(ShortConv, AdvancesSequencesOfOneStepApart) {
  const int64_t d = 48;
  Model m = make_model(GetParam(), 2, d, 3);
  const std::vector<float> a = random_floats(9 * 3 * d, 10), b = random_floats(4 * 3 * d, 11);
  std::vector<float> want = run_chunks(m, a, 9, true);
  const std::vector<float> second = run_chunks(m, b, 4, true);
  want.insert(want.end(), second.begin(), second.end());
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  m.backend->zero_slot(0);
  m.backend->zero_slot(1);
  write_rows(*m.backend, m.bcx, both);
  run_step(*m.backend,
           Step({{.n_rows = 9, .src_slot = 0, .dst_slot = 2},
                 {.n_rows = 4, .src_slot = 1, .dst_slot = 1}}),
           [&] { m.backend->short_conv(kOffset, m.bcx, m.kernel, m.out); });
  EXPECT_EQ(read_rows(*m.backend, m.out, 13), want);
}

TEST_P(ShortConv, LeavesTheRestOfTheSlotAndMovesStateByDownloadAndUpload) {
  const int64_t d = 20;
  Model m = make_model(GetParam(), 1, d, 3);
  const auto n = static_cast<size_t>(kOffset + 2 * d);
  std::vector<float> state(n);
  for (size_t i = 0; i < n; ++i) state[i] = static_cast<float>(i) + 0.5f;
  m.backend->upload_slot(4, state);
  m.backend->copy_slot(4, 5);
  const std::vector<float> bcx = random_floats(3 * d, 12);
  write_rows(*m.backend, m.bcx, bcx);
  run_step(*m.backend, Step({{.n_past = 9, .n_rows = 1, .src_slot = 5, .dst_slot = 5}}),
           [&] { m.backend->short_conv(kOffset, m.bcx, m.kernel, m.out); });
  std::vector<float> after(n);
  m.backend->download_slot(5, after);
  for (size_t i = 0; i < kOffset; ++i) EXPECT_EQ(after[i], state[i]);
  for (size_t c = 0; c < static_cast<size_t>(d); ++c) {
    EXPECT_EQ(after[kOffset + c], state[kOffset + static_cast<size_t>(d) + c]);
    EXPECT_EQ(after[kOffset + static_cast<size_t>(d) + c],
              bcx[c] * bcx[2 * static_cast<size_t>(d) + c]);
  }
  m.backend->download_slot(4, after);
  EXPECT_EQ(after, state) << "the copied slot changed with its copy";
}

TEST_P(ShortConv, PerfOfRealRows) {
  const int64_t d = 1024;
  for (const uint32_t n : {1u, 512u}) {
    const auto backend = open(GetParam());
    const ops::Rows bcx = make_rows(*backend, n, 3 * d, random_floats(n * 3 * d, 1));
    const ops::Rows out = make_rows(*backend, n, d);
    const ops::Vector kernel = *backend->add_vector(random_floats(d * 3, 2));
    ASSERT_TRUE(backend->set_state({.floats_per_slot = 2048, .max_slots = 1}).ok());
    run_step(*backend, Step::plain(n), [&] {
      time_case(
          std::string(cpu_level_name(GetParam())) + ".short_conv 1024x3 rows " + std::to_string(n),
          n * d, "Gvalues/s", [&] { backend->short_conv(0, bcx, kernel, out); });
    });
  }
}

}  // namespace
}  // namespace okibi::ops_test
