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
constexpr uint64_t kFillSeed = 5;
// Far beyond any cache, and no more memory than a model's K/V.
constexpr uint64_t kMaxRoofBytes = uint64_t{4} << 30;

struct Subject {
  size_t set = 0;  // in the plan
  std::string label;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> base;  // filled to the depth being measured
  Snapshot filled;                // of base; every sample starts from it
  std::unique_ptr<Session> work;
};

// Sets measured together.
struct Group {
  std::vector<size_t> sets;  // one or two
  std::vector<uint32_t> depths;
};

std::vector<TokenId> random_tokens(uint32_t n, uint32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

// One sample: seconds for n tokens after the filled context.
Result<double> take_sample(Subject& subject, BenchTest test, uint32_t n, uint64_t* hash) {
  OKIBI_RETURN_IF_ERROR(subject.work->restore(subject.filled));
  const std::vector<TokenId> tokens = random_tokens(n, subject.engine->info().n_vocab, 11);
  double seconds = 0;
  if (test == BenchTest::kPrefill) {
    const double start = seconds_now();
    OKIBI_RETURN_IF_ERROR(subject.work->append(tokens));
    seconds = seconds_now() - start;
  } else {
    // The first token after a restore copies the open page and the state; it is not what is
    // measured.
    OKIBI_RETURN_IF_ERROR(subject.work->append(std::span(tokens).first(1)));
    const double start = seconds_now();
    for (TokenId token : tokens) {
      OKIBI_RETURN_IF_ERROR(subject.work->append(std::span(&token, 1)));
    }
    seconds = seconds_now() - start;
  }
  *hash = subject.work->logits_hash();
  return seconds;
}

void fill_row(BenchRow& row, const Subject& subject, const SparseOptions& sparse, uint32_t block) {
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
  if (row.test == BenchTest::kPrefill) {
    row.ops = token_ops(info, sparse, row.depth, row.n_tokens, 1);
  } else {  // one token was appended before the time began
    row.ops = token_ops(info, sparse, row.depth + 1, row.n_tokens, row.n_tokens);
    row.bytes = decode_bytes(info, sparse, row.depth + 1, row.n_tokens);
  }
}

// 0 where the roof is not known.
double seconds_at(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

void fill_shares(BenchRow& row, const ops::Roofs& roofs) {
  double limit = 0;  // seconds per token
  if (row.test == BenchTest::kDecode) {
    limit = seconds_at(row.bytes.total(), roofs.read_bytes_per_s);
    row.share_of_bandwidth = limit * row.tokens_per_s;
  } else {
    limit = seconds_at(row.ops.matrices, roofs.int8_ops_per_s) +
            seconds_at(row.ops.floats(), roofs.float_ops_per_s);
  }
  row.limit_tokens_per_s = limit > 0 ? 1 / limit : 0;
  if (roofs.int8_ops_per_s > 0) {
    row.share_of_peak = row.ops.matrices * row.tokens_per_s / roofs.int8_ops_per_s;
  }
}

// Every row against that of the next shallower depth.
void fill_ratios(const BenchPlan& plan, BenchResult& result) {
  for (size_t i = 0; i < result.rows.size(); ++i) {
    BenchRow& row = result.rows[i];
    const BenchRow* shallow = nullptr;
    for (size_t j = 0; j < i; ++j) {
      const BenchRow& other = result.rows[j];
      if (other.test != row.test || other.set != row.set || other.depth >= row.depth) continue;
      // The one of the same A-B-B-A where there is one.
      if (shallow == nullptr || other.depth > shallow->depth ||
          (other.depth == shallow->depth && other.against == row.against)) {
        shallow = &other;
      }
    }
    if (shallow == nullptr) continue;
    size_t set = 0;
    while (plan.sets[set].label != row.set) ++set;
    row.shallower = shallow->depth;
    row.ratio = row.tokens_per_s / shallow->tokens_per_s;
    row.ratio_limit =
        shallow->seconds_per_token() / limit_of_depth(*shallow, row, result.roofs[set]);
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

// After the tests, when no engine is open: the buffer that is read would count as its memory.
Status measure_roofs(const BenchPlan& plan, BenchResult& result) {
  for (size_t s = 0; s < plan.sets.size(); ++s) {
    const EngineOptions& o = plan.sets[s].options;
    const EngineOptions& first = plan.sets[0].options;
    if (s > 0 && o.cpu_level == first.cpu_level && o.n_threads == first.n_threads &&
        o.model_path == first.model_path) {
      result.roofs.push_back(result.roofs[0]);
    } else {
      const uint64_t n_bytes = std::min(result.models[s].file_bytes, kMaxRoofBytes);
      OKIBI_ASSIGN_OR_RETURN(
          ops::Roofs roofs,
          engine::measure_roofs({.cpu_level = o.cpu_level, .n_threads = o.n_threads}, n_bytes));
      result.roofs.push_back(roofs);
    }
    for (BenchRow& row : result.rows) {
      if (row.set == plan.sets[s].label) fill_shares(row, result.roofs[s]);
    }
  }
  return ok_status();
}

// Brings the base to `depth`, from the shallower depth it has.
Status fill_base(Subject& subject, BenchFill fill, uint32_t depth) {
  const auto n = static_cast<uint32_t>(subject.base->n_tokens());
  subject.filled = Snapshot();
  if (fill == BenchFill::kRandom) {
    OKIBI_RETURN_IF_ERROR(subject.base->fill_random(depth - n, kFillSeed));
  } else {
    const std::vector<TokenId> tokens =
        random_tokens(depth, subject.engine->info().n_vocab, kFillSeed);
    OKIBI_RETURN_IF_ERROR(subject.base->append(std::span(tokens).subspan(n)));
  }
  OKIBI_ASSIGN_OR_RETURN(subject.filled, subject.base->snapshot());
  return ok_status();
}

Result<std::vector<BenchRow>> measure(std::vector<Subject>& subjects, const BenchPlan& plan,
                                      BenchTest test, uint32_t depth) {
  const uint32_t n = test == BenchTest::kPrefill ? plan.n_prefill : plan.n_decode;
  std::vector<BenchRow> rows(subjects.size());
  const size_t last = subjects.size() - 1;
  for (size_t s = 0; s < subjects.size(); ++s) {
    rows[s].test = test;
    rows[s].depth = depth;
    rows[s].n_tokens = n;
    rows[s].set = subjects[s].label;
    if (last > 0) rows[s].against = subjects[last - s].label;
    OKIBI_ASSIGN_OR_RETURN(double warm, take_sample(subjects[s], test, n, &rows[s].logits_hash));
    (void)warm;
  }
  const size_t order[] = {0, last, last, 0};
  for (uint32_t round = 0; round < plan.n_rounds; ++round) {
    for (size_t s : order) {
      for (uint32_t i = 0; i < plan.n_samples_per_block; ++i) {
        uint64_t hash = 0;
        OKIBI_ASSIGN_OR_RETURN(double seconds, take_sample(subjects[s], test, n, &hash));
        rows[s].seconds.push_back(seconds);
        if (hash == rows[s].logits_hash) continue;
        return bad_data(
            fmt::format("set {} at depth {}: one sample has logits {:016x}, another {:016x}",
                        rows[s].set, depth, rows[s].logits_hash, hash));
      }
    }
  }
  for (size_t s = 0; s < subjects.size(); ++s) {
    fill_row(rows[s], subjects[s], plan.sets[subjects[s].set].options.sparse,
             plan.n_samples_per_block);
  }
  return rows;
}

Result<std::vector<Subject>> open_subjects(const BenchPlan& plan, const Group& group,
                                           const std::function<void(const std::string&)>& say,
                                           BenchResult& result) {
  std::vector<Subject> subjects;
  for (size_t s : group.sets) {
    const BenchSet& set = plan.sets[s];
    say(fmt::format("loading {} as set {}", set.options.model_path, set.label));
    EngineOptions options = set.options;
    if (options.n_ctx == 0) {
      options.n_ctx = group.depths.back() + std::max(plan.n_prefill, plan.n_decode + 1) + 64;
    }
    Subject subject{.set = s, .label = set.label};
    OKIBI_ASSIGN_OR_RETURN(subject.engine, Engine::open(options));
    result.models[s] = subject.engine->info();
    if (set.is_same_work && result.models[s].n_sparse_layers == 0) {
      return invalid_argument(fmt::format("set {}: {} selects no blocks, switches change nothing",
                                          set.label, options.model_path));
    }
    const std::vector<MemoryPlan::Row>& memory = subject.engine->memory().rows;
    result.planned_cache_bytes[s] =
        std::max(result.planned_cache_bytes[s], memory[1].bytes + memory[2].bytes);
    OKIBI_ASSIGN_OR_RETURN(subject.base, subject.engine->new_session());
    OKIBI_ASSIGN_OR_RETURN(subject.work, subject.engine->new_session());
    // A step shows the layers' index keys to fill_random, which then pools as the layers do.
    const TokenId token = 0;
    OKIBI_RETURN_IF_ERROR(subject.work->append(std::span(&token, 1)));
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

Status run_group(const BenchPlan& plan, const Group& group,
                 const std::function<void(const std::string&)>& say, BenchResult& result) {
  OKIBI_ASSIGN_OR_RETURN(std::vector<Subject> subjects, open_subjects(plan, group, say, result));
  for (uint32_t depth : group.depths) {
    for (Subject& subject : subjects) {
      if (depth > 0) say(fmt::format("filling set {} to {} tokens", subject.label, depth));
      OKIBI_RETURN_IF_ERROR(fill_base(subject, plan.fill, depth));
    }
    for (BenchTest test : {BenchTest::kPrefill, BenchTest::kDecode}) {
      if ((test == BenchTest::kPrefill ? plan.n_prefill : plan.n_decode) == 0) continue;
      say(fmt::format("{} at depth {}", test == BenchTest::kPrefill ? "prefill" : "decode", depth));
      OKIBI_ASSIGN_OR_RETURN(std::vector<BenchRow> rows, measure(subjects, plan, test, depth));
      if (rows.size() == 2) {
        result.comparisons.push_back({.test = test,
                                      .depth = depth,
                                      .set = rows[1].set,
                                      .speed = rows[1].tokens_per_s / rows[0].tokens_per_s,
                                      .is_same_hash = rows[0].logits_hash == rows[1].logits_hash,
                                      .is_same_work = plan.sets[subjects[1].set].is_same_work});
      }
      result.rows.insert(result.rows.end(), rows.begin(), rows.end());
    }
  }
  if (plan.profile) {
    OKIBI_ASSIGN_OR_RETURN(result.profile, take_profile(subjects.front(), plan));
  }
  return ok_status();
}

std::vector<Group> groups_of(const BenchPlan& plan) {
  if (plan.sets.size() == 1) return {{{0}, plan.depths}};
  std::vector<uint32_t> of_pairs, beyond;
  for (uint32_t d : plan.depths) (d <= plan.deepest_pair ? of_pairs : beyond).push_back(d);
  std::vector<Group> groups;
  for (size_t s = 1; s < plan.sets.size() && !of_pairs.empty(); ++s) {
    groups.push_back({{0, s}, of_pairs});
  }
  if (!beyond.empty()) groups.push_back({{0}, beyond});
  return groups;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double limit_of_depth(const BenchRow& shallow, const BenchRow& deep, const ops::Roofs& roofs) {
  const double more =
      deep.test == BenchTest::kDecode
          ? seconds_at(deep.bytes.total() - shallow.bytes.total(), roofs.read_bytes_per_s)
          : seconds_at(deep.ops.floats() - shallow.ops.floats(), roofs.float_ops_per_s);
  return shallow.seconds_per_token() + std::max(0.0, more);
}

Result<BenchResult> run_bench(const BenchPlan& plan,
                              const std::function<void(const std::string&)>& say) {
  BenchResult result;
  result.models.resize(plan.sets.size());
  result.planned_cache_bytes.resize(plan.sets.size());
  for (const Group& group : groups_of(plan)) {
    OKIBI_RETURN_IF_ERROR(run_group(plan, group, say, result));
  }
  result.peak_resident_bytes = peak_resident_bytes();
  for (size_t s = 0; s < plan.sets.size(); ++s) {  // of sets that no depth was measured for
    if (result.models[s].file_bytes == 0) result.models[s] = result.models[0];
  }
  say("measuring the roofs");
  OKIBI_RETURN_IF_ERROR(measure_roofs(plan, result));
  fill_ratios(plan, result);
  return result;
}

}  // namespace okibi::apps
