#include "apps/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/clock.h"
#include "engine/open_backend.h"
#include "okibi/session.h"
#include "platform/file_map.h"

namespace okibi::apps {
namespace {

constexpr double kTwinTolerance = 0.05;

struct Subject {
  BenchSet set;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> base;  // filled to the depth being measured
};

std::vector<TokenId> random_tokens(uint32_t n, uint32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

// One sample: seconds for n tokens on a fork of the base, so that every sample starts from the same
// state.
Result<double> take_sample(Subject& subject, BenchTest test, uint32_t n, uint64_t* hash) {
  OKIBI_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, subject.base->fork());
  const std::vector<TokenId> tokens = random_tokens(n, subject.engine->info().n_vocab, 11);
  double seconds = 0;
  if (test == BenchTest::kPrefill) {
    const double start = seconds_now();
    OKIBI_RETURN_IF_ERROR(session->append(tokens));
    seconds = seconds_now() - start;
  } else {
    // The first token after a fork copies the open page; it is not what is measured.
    OKIBI_RETURN_IF_ERROR(session->append(std::span(tokens).first(1)));
    const double start = seconds_now();
    for (TokenId token : tokens) {
      OKIBI_RETURN_IF_ERROR(session->append(std::span(&token, 1)));
    }
    seconds = seconds_now() - start;
  }
  *hash = session->logits_hash();
  return seconds;
}

void fill_row(BenchRow& row, const Subject& subject, uint32_t block) {
  std::vector<double> first(row.seconds.begin(), row.seconds.begin() + block);
  std::vector<double> last(row.seconds.end() - block, row.seconds.end());
  row.median_s = median_of(row.seconds);
  row.min_s = *std::min_element(row.seconds.begin(), row.seconds.end());
  row.max_s = *std::max_element(row.seconds.begin(), row.seconds.end());
  const double a = median_of(first), b = median_of(last);
  row.twin_difference = std::abs(a - b) / (0.5 * (a + b));
  row.is_flagged = row.twin_difference > kTwinTolerance;
  row.tokens_per_s = row.n_tokens / row.median_s;
  row.identity = subject.engine->numeric_identity();
  row.n_threads = subject.engine->n_threads();

  const ModelInfo& info = subject.engine->info();
  row.ops_per_token = 2.0 * static_cast<double>(info.macs_per_token);
  if (row.test == BenchTest::kPrefill) {
    row.ops_per_token += 2.0 * static_cast<double>(info.output_macs) / row.n_tokens;
  } else {
    const double context = row.depth + 0.5 * row.n_tokens;
    row.ops_per_token += 2.0 * static_cast<double>(info.output_macs);
    row.bytes_per_token = static_cast<double>(info.weight_bytes_per_token) +
                          2.0 * static_cast<double>(info.state_bytes) +
                          static_cast<double>(info.kv_bytes_per_token) * context;
  }
}

void fill_shares(BenchRow& row, const ops::Roofs& roofs) {
  if (row.test == BenchTest::kDecode && roofs.read_bytes_per_s > 0) {
    row.share_of_bandwidth = row.bytes_per_token * row.tokens_per_s / roofs.read_bytes_per_s;
  }
  if (roofs.int8_ops_per_s > 0) {
    row.share_of_peak = row.ops_per_token * row.tokens_per_s / roofs.int8_ops_per_s;
  }
}

// One sample of each test at the last depth, with the time of every operation.
Result<Engine::Profile> take_profile(Subject& subject, const BenchPlan& plan) {
  subject.engine->set_profiling(true);
  uint64_t hash = 0;
  for (BenchTest test : {BenchTest::kPrefill, BenchTest::kDecode}) {
    const uint32_t n = test == BenchTest::kPrefill ? plan.n_prefill : plan.n_decode;
    if (n > 0) OKIBI_RETURN_IF_ERROR(take_sample(subject, test, n, &hash).status());
  }
  subject.engine->set_profiling(false);
  return subject.engine->take_profile();
}

// After the tests: the buffer that is read is as large as the model and would count as its memory.
Status measure_roofs(const std::vector<Subject>& subjects, BenchResult& result) {
  for (const Subject& subject : subjects) {
    OKIBI_ASSIGN_OR_RETURN(ops::Roofs roofs,
                           engine::measure_roofs({.cpu_level = subject.set.options.cpu_level,
                                                  .n_threads = subject.set.options.n_threads},
                                                 subject.engine->info().file_bytes));
    result.roofs.push_back(roofs);
    for (BenchRow& row : result.rows) {
      if (row.set == subject.set.label) fill_shares(row, roofs);
    }
  }
  return ok_status();
}

Status fill_base(Subject& subject, uint32_t depth) {
  OKIBI_ASSIGN_OR_RETURN(subject.base, subject.engine->new_session());
  if (depth == 0) return ok_status();
  return subject.base->append(random_tokens(depth, subject.engine->info().n_vocab, 5));
}

Result<std::vector<BenchRow>> measure(std::vector<Subject>& subjects, const BenchPlan& plan,
                                      BenchTest test, uint32_t depth) {
  const uint32_t n = test == BenchTest::kPrefill ? plan.n_prefill : plan.n_decode;
  std::vector<BenchRow> rows(subjects.size());
  for (size_t s = 0; s < subjects.size(); ++s) {
    rows[s].test = test;
    rows[s].depth = depth;
    rows[s].n_tokens = n;
    rows[s].set = subjects[s].set.label;
    OKIBI_ASSIGN_OR_RETURN(double warm, take_sample(subjects[s], test, n, &rows[s].logits_hash));
    (void)warm;
  }
  const size_t last = subjects.size() - 1;
  const size_t order[] = {0, last, last, 0};
  for (uint32_t round = 0; round < plan.n_rounds; ++round) {
    for (size_t s : order) {
      for (uint32_t i = 0; i < plan.n_samples_per_block; ++i) {
        OKIBI_ASSIGN_OR_RETURN(double seconds,
                               take_sample(subjects[s], test, n, &rows[s].logits_hash));
        rows[s].seconds.push_back(seconds);
      }
    }
  }
  for (size_t s = 0; s < subjects.size(); ++s) {
    fill_row(rows[s], subjects[s], plan.n_samples_per_block);
  }
  return rows;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

Result<BenchResult> run_bench(const BenchPlan& plan,
                              const std::function<void(const std::string&)>& say) {
  BenchResult result;
  std::vector<Subject> subjects;
  for (const BenchSet& set : plan.sets) {
    say(fmt::format("loading {} as set {}", set.options.model_path, set.label));
    Subject subject{.set = set};
    OKIBI_ASSIGN_OR_RETURN(subject.engine, Engine::open(set.options));
    result.models.push_back(subject.engine->info());
    const std::vector<MemoryPlan::Row>& memory = subject.engine->memory().rows;
    result.planned_cache_bytes.push_back(memory[1].bytes + memory[2].bytes);
    subjects.push_back(std::move(subject));
  }
  for (uint32_t depth : plan.depths) {
    for (Subject& subject : subjects) {
      if (depth > 0) say(fmt::format("filling set {} to {} tokens", subject.set.label, depth));
      OKIBI_RETURN_IF_ERROR(fill_base(subject, depth));
    }
    for (BenchTest test : {BenchTest::kPrefill, BenchTest::kDecode}) {
      if ((test == BenchTest::kPrefill ? plan.n_prefill : plan.n_decode) == 0) continue;
      say(fmt::format("{} at depth {}", test == BenchTest::kPrefill ? "prefill" : "decode", depth));
      OKIBI_ASSIGN_OR_RETURN(std::vector<BenchRow> rows, measure(subjects, plan, test, depth));
      result.rows.insert(result.rows.end(), rows.begin(), rows.end());
    }
  }
  result.peak_resident_bytes = peak_resident_bytes();
  if (plan.profile) {
    OKIBI_ASSIGN_OR_RETURN(result.profile, take_profile(subjects.front(), plan));
  }
  say("measuring the roofs");
  OKIBI_RETURN_IF_ERROR(measure_roofs(subjects, result));
  return result;
}

}  // namespace okibi::apps
