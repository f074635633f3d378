#include "decide/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "decide/json_value.h"
#include "decide/question.h"
#include "decide/readout.h"
#include "engine/picture_rows.h"
#include "reuse/key_space.h"
#include "reuse/prefix_cache.h"
#include "reuse/vision_cache.h"

namespace okibi::decision {

namespace {

// Sequences of this decision. Dropping one gives pages and slots back, which only the engine thread
// may do.
class OwnedSequences {
 public:
  explicit OwnedSequences(engine::Scheduler& scheduler) : scheduler_(scheduler) {}
  ~OwnedSequences() { clear(); }
  OwnedSequences(const OwnedSequences&) = delete;
  OwnedSequences& operator=(const OwnedSequences&) = delete;

  void clear() {
    if (sequences_.empty()) return;
    scheduler_.call([this](engine::Core&) { sequences_.clear(); });
  }
  reuse::Sequence* add(reuse::Sequence sequence) {  // on the engine thread
    sequences_.push_back(std::make_unique<reuse::Sequence>(std::move(sequence)));
    return sequences_.back().get();
  }

 private:
  engine::Scheduler& scheduler_;
  std::vector<std::unique_ptr<reuse::Sequence>> sequences_;
};

// How many forks of a prefix may run at once: as many as half of the free memory holds, so that a
// large decision does not make somebody's session fail. A fork takes a state slot when the model is
// recurrent, a copy of the prefix's open page, and pages for its suffix.
size_t n_forks_that_fit(const engine::Core& core, size_t n_prefix, size_t n_longest_suffix) {
  const model::ModelFacts& facts = core.model().facts();
  size_t n = SIZE_MAX;
  if (facts.state_floats > 0) n = core.n_free_slots() / 2;
  if (!facts.kv_layers.empty()) {
    const size_t page_tokens = static_cast<size_t>(core.sizes().page_tokens);
    const size_t n_pages =
        (n_prefix + n_longest_suffix + page_tokens - 1) / page_tokens - n_prefix / page_tokens;
    n = std::min(n, core.n_free_pages() / 2 / std::max<size_t>(n_pages, 1));
  }
  return n;
}

// What the key of everything kept for decisions begins with.
Sha256 space_of(const engine::Core& core, const std::string& scope) {
  return reuse::key_space(scope, sha256(bytes_of(core.numeric_identity())));
}

std::vector<reuse::PlacedView> views_before(const Prompt& prompt, size_t n) {
  std::vector<reuse::PlacedView> views;
  for (const Prompt::Rows& r : prompt.rows) {
    if (r.first < n)
      views.push_back({static_cast<uint32_t>(r.first), r.rows->n_rows, r.rows->view});
  }
  return views;
}

template <typename T>
void add_values(Sha256Stream* stream, std::span<const T> values) {
  const uint64_t n = values.size();
  stream->update({reinterpret_cast<const uint8_t*>(&n), sizeof n});
  stream->update({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

// Of all that a prompt's label logits depend on.
Sha256 answer_key(const Sha256& space, const AskedPrompt& asked) {
  Sha256Stream stream;
  stream.update(space);
  add_values<TokenId>(&stream, asked.prompt.tokens);
  add_values<TokenId>(&stream, asked.labels);
  for (const Prompt::Rows& r : asked.prompt.rows) {
    const uint64_t at[] = {r.first, r.rows->n_rows};
    add_values<uint64_t>(&stream, at);
    stream.update(r.rows->view);
  }
  return stream.finish();
}

class Runner {
 public:
  Runner(engine::Scheduler& scheduler, const Prompts& prompts, const RunOptions& options)
      : scheduler_(scheduler),
        prompts_(prompts),
        options_(options),
        space_(space_of(scheduler.facts(), options.scope)),
        prefix_owner_(scheduler) {
    result_.outputs.resize(prompts.asked.size());
  }

  Result<RunResult> run() && {
    find_kept_answers();
    if (waiting_.empty()) return std::move(result_);
    OKIBI_RETURN_IF_ERROR(check_context());
    const double start = seconds_now();
    OKIBI_RETURN_IF_ERROR(run_prefix());
    const double middle = seconds_now();
    OKIBI_RETURN_IF_ERROR(run_suffixes());
    result_.prefix_ms = (middle - start) * 1e3;
    result_.suffix_ms = (seconds_now() - middle) * 1e3;
    keep_answers();
    return std::move(result_);
  }

 private:
  void find_kept_answers() {
    for (size_t i = 0; i < prompts_.asked.size(); ++i) {
      keys_.push_back(answer_key(space_, prompts_.asked[i]));
      const auto kept =
          options_.answers == nullptr ? std::nullopt : options_.answers->find(keys_[i]);
      if (!kept || (options_.want_outside_mass && kept->outside_mass < 0)) {
        waiting_.push_back(i);
        continue;
      }
      result_.outputs[i] = {kept->labels, options_.want_outside_mass ? kept->outside_mass : -1,
                            /*was_kept=*/true};
    }
  }

  void keep_answers() {
    for (size_t i = 0; options_.answers != nullptr && i < keys_.size(); ++i) {
      const LabelLogits& out = result_.outputs[i];
      if (!out.was_kept) options_.answers->keep(keys_[i], {out.labels, out.outside_mass});
    }
  }

  Status check_context() const {
    size_t longest = 0;
    for (size_t i : waiting_) longest = std::max(longest, tokens(i).size());
    const size_t n_ctx = scheduler_.facts().sizes().n_ctx;
    if (longest <= n_ctx) return ok_status();
    return resource_exhausted(
        fmt::format("the state and its longest question are {} tokens, of "
                    "which the first {} are common to all questions; the "
                    "context holds {}",
                    longest, prompts_.n_shared, n_ctx));
  }

  // Prefilling stops at every end that is to be kept, since recurrent state cannot be cut later.
  // Where it stops changes no bit.
  Status run_prefix() {
    const Prompt& any = prompts_.asked[waiting_[0]].prompt;
    scheduler_.call([&](engine::Core& core) { begin_prefix(core, any); });
    for (const size_t end : prompts_.kept_ends) {
      if (end <= prefix_->n_tokens()) continue;
      OKIBI_RETURN_IF_ERROR(extend_prefix(any, end));
      scheduler_.call([&](engine::Core& core) {
        const bool is_kept = core.prefixes().keep(space_, *prefix_, views_before(any, end));
        if (is_kept) result_.n_kept_prefix = end - result_.n_known_prefix;
      });
    }
    if (prefix_->n_tokens() < prompts_.n_shared) return extend_prefix(any, prompts_.n_shared);
    return ok_status();
  }

  // The longest known beginning, or an empty sequence. Ends inside it are as good as used; where
  // a sequence can be cut, those not kept yet are kept now.
  void begin_prefix(engine::Core& core, const Prompt& any) {
    reuse::PrefixCache& prefixes = core.prefixes();
    const size_t n_lookup = prompts_.kept_ends.empty() ? 0 : prompts_.kept_ends.back();
    const std::span<const TokenId> tokens = any.tokens;
    std::optional<reuse::Sequence> known;
    if (n_lookup > 0) {
      known = prefixes.find(space_, tokens.first(n_lookup), views_before(any, n_lookup));
    }
    prefix_ = prefix_owner_.add(known ? *std::move(known) : core.new_sequence());
    result_.n_known_prefix = prefix_->n_tokens();
    const bool is_recurrent = core.model().facts().state_floats > 0;
    for (const size_t end : prompts_.kept_ends) {
      if (end > prefix_->n_tokens()) break;
      const std::vector<reuse::PlacedView> views = views_before(any, end);
      if (prefixes.refresh(space_, tokens.first(end), views) || is_recurrent) continue;
      reuse::Sequence shorter = prefix_->clone();
      shorter.cut(static_cast<uint32_t>(end));
      prefixes.keep(space_, shorter, views);
    }
  }

  Status extend_prefix(const Prompt& any, size_t end) {
    const size_t begin = prefix_->n_tokens();
    engine::Work work;
    work.sequence = prefix_;
    work.tokens.assign(any.tokens.begin() + static_cast<ptrdiff_t>(begin),
                       any.tokens.begin() + static_cast<ptrdiff_t>(end));
    engine::list_embeddings(any.rows, begin, work.tokens.size(), &work.embeddings);
    work.priority = Priority::kDecision;
    work.no_output = true;
    work.cancel = options_.cancel;
    return scheduler_.run(&work);
  }

  // Others may take the memory that was free when a wave was planned. Then the wave's unanswered
  // questions go again, in a smaller one.
  Status run_suffixes() {
    size_t max_wave = options_.max_wave > 0 ? options_.max_wave : waiting_.size();
    while (!waiting_.empty()) {
      size_t n_wave = std::min(max_wave, waiting_.size());
      const Status status = run_wave(&n_wave);
      if (status.ok()) continue;
      if (status.code() != StatusCode::kResourceExhausted || n_wave == 1) return status;
      max_wave = n_wave / 2;
    }
    return ok_status();
  }

  // Runs up to *n_wave waiting prompts and says how many it tried. The answered ones leave
  // waiting_.
  Status run_wave(size_t* n_wave) {
    OwnedSequences forks(scheduler_);
    std::vector<std::unique_ptr<engine::Work>> works;
    size_t longest = 0;
    for (size_t i = 0; i < *n_wave; ++i) {
      longest = std::max(longest, tokens(waiting_[i]).size() - prompts_.n_shared);
    }
    scheduler_.call([&](engine::Core& core) {
      const auto fit = [&] { return n_forks_that_fit(core, prompts_.n_shared, longest); };
      // A wave that fills its steps is worth more than what may be asked again; one that is larger
      // still gains nothing by it. The prefix is held here.
      const size_t n_worth = std::min(*n_wave, core.sizes().max_batch_rows / longest + 1);
      while (fit() < n_worth && core.prefixes().evict()) continue;
      *n_wave = std::clamp<size_t>(fit(), 1, *n_wave);
      for (size_t i = 0; i < *n_wave; ++i) {
        works.push_back(make_work(waiting_[i], forks.add(prefix_->clone())));
      }
    });
    std::vector<engine::Work*> pointers;
    for (const auto& work : works) pointers.push_back(work.get());
    const Status status = scheduler_.run(pointers);
    std::erase_if(waiting_, [this](size_t i) { return !result_.outputs[i].labels.empty(); });
    return status;
  }

  std::unique_ptr<engine::Work> make_work(size_t i, reuse::Sequence* fork) {
    auto work = std::make_unique<engine::Work>();
    const AskedPrompt& asked = prompts_.asked[i];
    work->sequence = fork;
    work->tokens.assign(tokens(i).begin() + static_cast<ptrdiff_t>(prompts_.n_shared),
                        tokens(i).end());
    engine::list_embeddings(asked.prompt.rows, prompts_.n_shared, work->tokens.size(),
                            &work->embeddings);
    work->priority = Priority::kDecision;
    work->cancel = options_.cancel;
    LabelLogits* out = &result_.outputs[i];
    if (!options_.want_outside_mass) {
      work->labels = asked.labels;
      work->on_logits = [out](size_t, std::span<const float> logits) {
        out->labels.assign(logits.begin(), logits.end());
      };
      return work;
    }
    work->on_logits = [out, &asked](size_t, std::span<const float> logits) {
      out->labels.clear();
      for (TokenId id : asked.labels) out->labels.push_back(logits[id]);
      out->outside_mass = outside_mass(out->labels, logits);
    };
    return work;
  }

  const std::vector<TokenId>& tokens(size_t i) const { return prompts_.asked[i].prompt.tokens; }

  engine::Scheduler& scheduler_;
  const Prompts& prompts_;
  const RunOptions& options_;
  const Sha256 space_;
  OwnedSequences prefix_owner_;
  reuse::Sequence* prefix_ = nullptr;
  std::vector<Sha256> keys_;     // of the prompts' answers
  std::vector<size_t> waiting_;  // prompts without an answer yet, in order
  RunResult result_;
};

// Requests built by programs have not been through the parser.
Status check_request(const DecisionRequest& request) {
  if (request.questions.empty()) return invalid_argument("there is no question to decide");
  for (const Question& question : request.questions) {
    const size_t n = question.options.size();
    const bool fits = question.type == QuestionType::kNoul ? n == 2 : n >= 1 && n <= kMaxOptions;
    if (fits) continue;
    return invalid_argument(fmt::format("question {}: has {} options; a noul has 2, others 1 to {}",
                                        quote_for_message(question.id), n, kMaxOptions));
  }
  for (double t : request.calibration
                      ? std::vector{request.calibration->noul, request.calibration->choice,
                                    request.calibration->score}
                      : std::vector<double>{}) {
    if (t > 0 && std::isfinite(t)) continue;
    return invalid_argument(fmt::format("calibration: a temperature is {}, expected above 0", t));
  }
  return ok_status();
}

}  // namespace

Result<RunResult> run_prompts(engine::Scheduler& scheduler, const Prompts& prompts,
                              const RunOptions& options) {
  return Runner(scheduler, prompts, options).run();
}

// The outputs of a question's orders, beginning at *next, which moves past them.
static Result<Answer> answer_of(const DecisionRequest& request, size_t question,
                                const Prompts& prompts, const RunResult& run, size_t* next) {
  std::vector<OrderedLogits> orders;
  uint32_t n_suffix_tokens = 0;
  double outside = -1;
  bool was_kept = true;
  for (; *next < prompts.asked.size() && prompts.asked[*next].question == question; ++*next) {
    const AskedPrompt& asked = prompts.asked[*next];
    orders.push_back({asked.order, run.outputs[*next].labels});
    n_suffix_tokens += static_cast<uint32_t>(asked.prompt.tokens.size() - prompts.n_shared);
    outside = std::max(outside, run.outputs[*next].outside_mass);
    was_kept = was_kept && run.outputs[*next].was_kept;
  }
  const Question& asked = request.questions[question];
  const double temperature = request.calibration ? request.calibration->of(asked.type) : 1;
  OKIBI_ASSIGN_OR_RETURN(Answer answer, read_answer(asked, orders, temperature));
  answer.outside_mass = outside;
  answer.n_suffix_tokens = n_suffix_tokens;
  answer.is_calibrated = request.calibration.has_value();
  answer.was_kept = was_kept;
  return answer;
}

static Result<DecisionResult> run_request(Engine& engine, const DecisionRequest& request) {
  const double start = seconds_now();
  OKIBI_ASSIGN_OR_RETURN(const Prompts prompts, make_prompts(&engine, engine.text(), request));
  DecisionResult result;
  result.timing.tokenize_ms = (seconds_now() - start) * 1e3;
  const bool may_keep_answers = request.use_kept_answers && !request.only_prefix_ends &&
                                engine.answer_cache().budget_bytes() > 0;
  OKIBI_ASSIGN_OR_RETURN(
      const RunResult run,
      run_prompts(engine.scheduler(), prompts,
                  {.want_outside_mass = request.want_outside_mass,
                   .scope = request.scope,
                   .answers = may_keep_answers ? &engine.answer_cache() : nullptr,
                   .cancel = request.cancel}));
  result.n_prefix_tokens = static_cast<uint32_t>(prompts.n_shared);
  result.n_known_prefix_tokens = static_cast<uint32_t>(run.n_known_prefix);
  result.n_kept_prefix_tokens = static_cast<uint32_t>(run.n_kept_prefix);
  size_t next = 0;
  bool all_kept = true;
  for (size_t i = 0; i < request.questions.size(); ++i) {
    if (is_settled(request.questions[i])) {
      result.answers.push_back(settled_answer(request.questions[i]));
      continue;
    }
    OKIBI_ASSIGN_OR_RETURN(Answer answer, answer_of(request, i, prompts, run, &next));
    result.n_suffix_tokens += answer.n_suffix_tokens;
    all_kept = all_kept && answer.was_kept;
    result.answers.push_back(std::move(answer));
  }
  if (all_kept) result.n_known_prefix_tokens = result.n_prefix_tokens;
  result.timing.prefix_ms = run.prefix_ms;
  result.timing.suffix_ms = run.suffix_ms;
  result.timing.total_ms = (seconds_now() - start) * 1e3;
  return result;
}

}  // namespace okibi::decision

namespace okibi {

Result<DecisionResult> decide(Engine& engine, const DecisionRequest& request) {
  OKIBI_RETURN_IF_ERROR(decision::check_request(request));
  return decision::run_request(engine, request);
}

}  // namespace okibi
