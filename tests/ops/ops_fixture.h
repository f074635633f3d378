// What the op tests share: the levels of this host, one-step plans, seeded inputs, error measures,
// and the timing of a case under --perf.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "ops/ops.h"

// For the double loops that results are compared with: they are not what is tested, and
// instrumented they took most of a sanitizer pass.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REFERENCE_CODE __attribute__((no_sanitize("address,undefined,thread"), optimize("O2")))
#else
#define REFERENCE_CODE
#endif

namespace okibi::ops_test {

// Every level the host runs, lowest first.
std::vector<CpuLevel> host_levels();
std::string level_test_name(const testing::TestParamInfo<CpuLevel>& info);

std::unique_ptr<ops::Backend> open(CpuLevel level, int n_threads = 1,
                                   ActivationType activations = ActivationType::kInt8);

// Normally distributed values.
std::vector<float> random_floats(int64_t n, uint32_t seed, float deviation = 1.0f);

// sum (got - want)^2 / sum want^2
double nmse(std::span<const float> got, std::span<const double> want);

// The rows of an activation buffer, one after another.
std::vector<float> read_rows(const ops::Backend& backend, ops::Rows rows, int64_t n_rows);
void write_rows(ops::Backend& backend, ops::Rows rows, std::span<const float> values);

// A buffer that holds `values` (n_rows x cols).
ops::Rows make_rows(ops::Backend& backend, int64_t max_rows, int64_t cols,
                    std::span<const float> values = {});

// One step, built from sequences.
class Step {
 public:
  struct Sequence {
    uint32_t n_past = 0, n_rows = 0;
    std::vector<ops::PageId> pages;
    ops::SlotId src_slot = 0, dst_slot = 0;
    std::vector<int32_t> past_tokens;
  };
  explicit Step(std::vector<Sequence> sequences);
  // n_rows rows without state or keys.
  static Step plain(uint32_t n_rows);

  void set_tokens(std::vector<int32_t> tokens) { tokens_ = std::move(tokens); }
  void set_outputs(std::vector<uint32_t> rows) { output_rows_ = std::move(rows); }
  void set_labels(const std::vector<std::vector<int32_t>>& labels);
  // Valid until the step changes.
  ops::BatchPlan plan() const;

 private:
  std::vector<Sequence> sequences_;
  std::vector<ops::SequenceSpan> spans_;
  std::vector<int32_t> tokens_, positions_, labels_;
  std::vector<uint32_t> row_sequence_, output_rows_, label_begin_;
};

// Runs `body` inside begin_step / end_step of the plan.
void run_step(ops::Backend& backend, const Step& step, const std::function<void()>& body);

// Set by main from --perf.
extern bool perf_enabled;
// Under --perf: repeats `body` for about a tenth of a second and prints the best time, and `work`
// per second in units of 1e9 (`unit`, "GFLOP/s").
void time_case(const std::string& name, double work, const char* unit,
               const std::function<void()>& body);

}  // namespace okibi::ops_test
