// Timing of prefill and decode for one or two sets of engine options in one process: blocks in the
// order A-B-B-A, so that a drift of the machine falls on both; with one set, A-A-A-A. The first and
// the last block of A are twins: when their medians differ by more than 5 %, the row is flagged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "okibi/engine.h"
#include "okibi/status.h"
#include "ops/roofs.h"

namespace okibi::apps {

enum class BenchTest { kPrefill, kDecode };

struct BenchSet {
  std::string label;  // "A" or "B"
  EngineOptions options;
};

struct BenchPlan {
  std::vector<BenchSet> sets;  // one or two
  std::vector<uint32_t> depths = {0};
  uint32_t n_prefill = 512;
  uint32_t n_decode = 64;
  uint32_t n_rounds = 2;  // of A-B-B-A
  uint32_t n_samples_per_block = 2;
  bool profile = false;  // one more sample of each test of set A, by operation
};

// One row of results: one test at one depth with one set.
struct BenchRow {
  BenchTest test = BenchTest::kPrefill;
  uint32_t depth = 0;
  uint32_t n_tokens = 0;
  std::string set;
  std::string identity;  // backend, level, types: what computed
  int n_threads = 0;
  std::vector<double> seconds;  // every sample, in order
  double median_s = 0, min_s = 0, max_s = 0;
  double twin_difference = 0;  // |first block - last block| / their mean, of the medians
  bool is_flagged = false;
  double tokens_per_s = 0;     // of the median
  double bytes_per_token = 0;  // decode: weights, state and K/V read
  double ops_per_token = 0;    // int8 operations of the matrices, two per multiply-add
  double share_of_bandwidth = 0, share_of_peak = 0;  // 0 when no roof is known
  uint64_t logits_hash = 0;                          // of the last sample: equal for equal work
};

struct BenchResult {
  std::vector<BenchRow> rows;
  std::vector<ops::Roofs> roofs;              // beside sets
  std::vector<ModelInfo> models;              // beside sets
  std::vector<uint64_t> planned_cache_bytes;  // beside sets: K/V and state
  uint64_t peak_resident_bytes = 0;           // of the process, all sets together
  Engine::Profile profile;                    // when the plan asks for it
};

// `say` is told what is being measured, for a progress line.
Result<BenchResult> run_bench(const BenchPlan& plan,
                              const std::function<void(const std::string&)>& say);

// Of at least one value.
double median_of(std::vector<double> values);

}  // namespace okibi::apps
