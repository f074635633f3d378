#include "ops/ops_fixture.h"

#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace okibi::ops_test {

namespace {

// Of this thread: what a busy machine leaves of a measurement.
double cpu_seconds() {
  struct timespec t {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

bool perf_enabled = false;

std::vector<CpuLevel> host_levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(best_level(host_cpu())); ++i) {
    levels.push_back(static_cast<CpuLevel>(i));
  }
  return levels;
}

std::string level_test_name(const testing::TestParamInfo<CpuLevel>& info) {
  return std::string(cpu_level_name(info.param));
}

std::unique_ptr<ops::Backend> open(CpuLevel level, int n_threads, ActivationType activations) {
  auto backend =
      cpu::make_cpu_backend({.level = level, .n_threads = n_threads, .activations = activations});
  if (!backend.ok()) ADD_FAILURE() << backend.status().message();
  return std::move(backend).value();
}

std::vector<float> random_floats(int64_t n, uint32_t seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(generator);
  return values;
}

double nmse(std::span<const float> got, std::span<const double> want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = static_cast<double>(got[i]) - want[i];
    error += e * e;
    norm += want[i] * want[i];
  }
  return norm > 0 ? error / norm : error;
}

std::vector<float> read_rows(const ops::Backend& backend, ops::Rows rows, int64_t n_rows) {
  std::vector<float> all;
  for (int64_t r = 0; r < n_rows; ++r) {
    const std::span<const float> row = backend.read(rows, r);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

void write_rows(ops::Backend& backend, ops::Rows rows, std::span<const float> values) {
  const auto cols = static_cast<size_t>(rows.cols);
  for (size_t r = 0; r * cols < values.size(); ++r) {
    backend.write(rows, static_cast<int64_t>(r), values.subspan(r * cols, cols));
  }
}

ops::Rows make_rows(ops::Backend& backend, int64_t max_rows, int64_t cols,
                    std::span<const float> values) {
  auto rows = backend.add_rows(max_rows, cols);
  EXPECT_TRUE(rows.ok());
  write_rows(backend, *rows, values);
  return *rows;
}

Step::Step(std::vector<Sequence> sequences) : sequences_(std::move(sequences)) {
  for (const Sequence& s : sequences_) {
    ops::SequenceSpan span;
    span.first_row = static_cast<uint32_t>(positions_.size());
    span.n_rows = s.n_rows;
    span.n_past = s.n_past;
    span.src_slot = s.src_slot;
    span.dst_slot = s.dst_slot;
    span.pages = s.pages;
    span.past_tokens = s.past_tokens;
    for (uint32_t i = 0; i < s.n_rows; ++i) {
      positions_.push_back(static_cast<int32_t>(s.n_past + i));
      row_sequence_.push_back(static_cast<uint32_t>(spans_.size()));
    }
    spans_.push_back(span);
  }
  tokens_.resize(positions_.size());
}

Step Step::plain(uint32_t n_rows) {
  Sequence s;
  s.n_rows = n_rows;
  return Step({s});
}

void Step::set_labels(const std::vector<std::vector<int32_t>>& labels) {
  label_begin_ = {0};
  for (const std::vector<int32_t>& l : labels) {
    labels_.insert(labels_.end(), l.begin(), l.end());
    label_begin_.push_back(static_cast<uint32_t>(labels_.size()));
  }
}

ops::BatchPlan Step::plan() const {
  ops::BatchPlan plan;
  plan.n_rows = static_cast<uint32_t>(positions_.size());
  plan.tokens = tokens_;
  plan.positions = positions_;
  plan.row_sequence = row_sequence_;
  plan.sequences = spans_;
  plan.output_rows = output_rows_;
  plan.label_begin = label_begin_;
  plan.labels = labels_;
  return plan;
}

void run_step(ops::Backend& backend, const Step& step, const std::function<void()>& body) {
  const ops::BatchPlan plan = step.plan();
  backend.begin_step(plan);
  body();
  backend.end_step();
}

void time_case(const std::string& name, double work, const char* unit,
               const std::function<void()>& body) {
  if (!perf_enabled) return;
  double best = 1e9, best_cpu = 1e9;
  int64_t n_runs = 0;
  const double end = seconds_now() + 0.1;
  body();
  while (seconds_now() < end || n_runs < 3) {
    const double cpu_start = cpu_seconds();
    const double start = seconds_now();
    body();
    best = std::min(best, seconds_now() - start);
    best_cpu = std::min(best_cpu, cpu_seconds() - cpu_start);
    ++n_runs;
  }
  std::printf("%-52s %12.2f us %9.2f %s (processor time %.2f us)\n", name.c_str(), best * 1e6,
              work / best * 1e-9, unit, best_cpu * 1e6);
}

}  // namespace okibi::ops_test
