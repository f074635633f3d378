// Timing of prefill and decode for one set of engine options, or for others against the first: each
// of them in blocks of the order A-B-B-A in one process, so that a drift of the machine falls on
// both; one set alone A-A-A-A. The first and the last block of a row are twins: when their medians
// differ by more than 5 %, the row is flagged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench_work.h"
#include "okibi/engine.h"
#include "okibi/status.h"
#include "ops/roofs.h"

namespace okibi::apps {

enum class BenchTest { kPrefill, kDecode };
// What a context of some depth is made of: tokens run through the model, or random keys, values and
// state (Session::fill_random), which takes seconds where running takes hours.
enum class BenchFill { kPrefill, kRandom };

struct BenchSet {
  std::string label;      // "A", "B"
  EngineOptions options;  // n_ctx 0: what the depths need
  // Differs from the first set by switches only that change no bit: another hash is an error.
  bool is_same_work = false;
};

struct BenchPlan {
  std::vector<BenchSet> sets;          // the first alone, or each other one against it
  std::vector<uint32_t> depths = {0};  // ascending
  // Depths above are measured for the first set alone, one engine at a time.
  uint32_t deepest_pair = UINT32_MAX;
  BenchFill fill = BenchFill::kPrefill;
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
  std::string against;   // the other set of its A-B-B-A; empty: none
  std::string identity;  // backend, level, types: what computed
  int n_threads = 0;
  std::vector<double> seconds;  // every sample, in order
  double median_s = 0, min_s = 0, max_s = 0;
  double twin_difference = 0;  // |first block - last block| / their mean, of the medians
  bool is_flagged = false;
  double tokens_per_s = 0;                           // of the median
  TokenBytes bytes;                                  // decode only
  TokenOps ops;                                      // per token
  double share_of_bandwidth = 0, share_of_peak = 0;  // 0 when no roof is known
  double limit_tokens_per_s = 0;  // bytes over bandwidth, or operations over their peaks
  // Against the next shallower depth: speed here over speed there, and what that would be if the
  // bytes or operations that depth adds cost the time they need at the measured roof.
  uint32_t shallower = 0;
  double ratio = 0, ratio_limit = 0;  // 0 at the shallowest
  uint64_t logits_hash = 0;           // of every sample: equal for equal work

  double seconds_per_token() const { return median_s / n_tokens; }
};

// A set against the first one, measured together.
struct BenchComparison {
  BenchTest test = BenchTest::kPrefill;
  uint32_t depth = 0;
  std::string set;
  double speed = 0;  // tokens/s over the first set's
  bool is_same_hash = false;
  bool is_same_work = false;  // the hashes must be equal
};

struct BenchResult {
  std::vector<BenchRow> rows;
  std::vector<BenchComparison> comparisons;
  std::vector<ops::Roofs> roofs;              // beside sets
  std::vector<ModelInfo> models;              // beside sets
  std::vector<uint64_t> planned_cache_bytes;  // beside sets: K/V and state
  uint64_t peak_resident_bytes = 0;           // of the process, all sets together
  Engine::Profile profile;                    // when the plan asks for it
};

// `say` is told what is being measured, for a progress line. Fails when samples of one row differ
// in a bit of their logits.
Result<BenchResult> run_bench(const BenchPlan& plan,
                              const std::function<void(const std::string&)>& say);

// Seconds per token at `deep` if what it costs more than `shallow` took the time that it needs at
// the roof and nothing else changed.
double limit_of_depth(const BenchRow& shallow, const BenchRow& deep, const ops::Roofs& roofs);

// Of at least one value.
double median_of(std::vector<double> values);

}  // namespace okibi::apps
