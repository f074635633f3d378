#include "decide/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "decide/json_value.h"
#include "decide/question.h"
#include "decide/readout.h"

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

class Runner {
 public:
  Runner(engine::Scheduler& scheduler, const Prompts& prompts,
         std::span<const std::vector<TokenId>> labels, const RunOptions& options)
      : scheduler_(scheduler),
        prompts_(prompts),
        labels_(labels),
        options_(options),
        prefix_owner_(scheduler) {
    result_.outputs.resize(prompts.tokens.size());
    for (size_t i = 0; i < prompts.tokens.size(); ++i) {
      if (!prompts.tokens[i].empty()) waiting_.push_back(i);
    }
  }

  Result<RunResult> run() && {
    if (waiting_.empty()) return std::move(result_);
    OKIBI_RETURN_IF_ERROR(check_context());
    const double start = seconds_now();
    OKIBI_RETURN_IF_ERROR(run_prefix());
    const double middle = seconds_now();
    OKIBI_RETURN_IF_ERROR(run_suffixes());
    result_.prefix_ms = (middle - start) * 1e3;
    result_.suffix_ms = (seconds_now() - middle) * 1e3;
    return std::move(result_);
  }

 private:
  Status check_context() const {
    size_t longest = 0;
    for (size_t i : waiting_) longest = std::max(longest, prompts_.tokens[i].size());
    const size_t n_ctx = scheduler_.facts().sizes().n_ctx;
    if (longest <= n_ctx) return ok_status();
    return resource_exhausted(
        fmt::format("the state and its longest question are {} tokens, of "
                    "which the first {} are common to all questions; the "
                    "context holds {}",
                    longest, prompts_.n_shared, n_ctx));
  }

  Status run_prefix() {
    scheduler_.call(
        [this](engine::Core& core) { prefix_ = prefix_owner_.add(core.new_sequence()); });
    if (prompts_.n_shared == 0) return ok_status();
    const std::vector<TokenId>& any = prompts_.tokens[waiting_[0]];
    engine::Work work;
    work.sequence = prefix_;
    work.tokens.assign(any.begin(), any.begin() + prompts_.n_shared);
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

  // Runs up to *n_wave waiting questions and says how many it tried. The answered ones leave
  // waiting_.
  Status run_wave(size_t* n_wave) {
    OwnedSequences forks(scheduler_);
    std::vector<std::unique_ptr<engine::Work>> works;
    size_t longest = 0;
    for (size_t i = 0; i < *n_wave; ++i) {
      longest = std::max(longest, prompts_.tokens[waiting_[i]].size() - prompts_.n_shared);
    }
    scheduler_.call([&](engine::Core& core) {
      const size_t n_fit = n_forks_that_fit(core, prompts_.n_shared, longest);
      *n_wave = std::clamp<size_t>(n_fit, 1, *n_wave);
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
    const std::vector<TokenId>& tokens = prompts_.tokens[i];
    work->sequence = fork;
    work->tokens.assign(tokens.begin() + prompts_.n_shared, tokens.end());
    work->priority = Priority::kDecision;
    work->cancel = options_.cancel;
    LabelLogits* out = &result_.outputs[i];
    if (!options_.want_outside_mass) {
      work->labels = labels_[i];
      work->on_logits = [out](size_t, std::span<const float> logits) {
        out->labels.assign(logits.begin(), logits.end());
      };
      return work;
    }
    work->on_logits = [out, labels = labels_[i]](size_t, std::span<const float> logits) {
      out->labels.clear();
      for (TokenId id : labels) out->labels.push_back(logits[id]);
      out->outside_mass = outside_mass(out->labels, logits);
    };
    return work;
  }

  engine::Scheduler& scheduler_;
  const Prompts& prompts_;
  std::span<const std::vector<TokenId>> labels_;
  const RunOptions& options_;
  OwnedSequences prefix_owner_;
  reuse::Sequence* prefix_ = nullptr;
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
  return ok_status();
}

}  // namespace

Result<RunResult> run_prompts(engine::Scheduler& scheduler, const Prompts& prompts,
                              std::span<const std::vector<TokenId>> labels,
                              const RunOptions& options) {
  return Runner(scheduler, prompts, labels, options).run();
}

}  // namespace okibi::decision

namespace okibi {

Result<DecisionResult> decide(Engine& engine, const DecisionRequest& request) {
  const double start = seconds_now();
  OKIBI_RETURN_IF_ERROR(decision::check_request(request));
  OKIBI_ASSIGN_OR_RETURN(const decision::Prompts prompts,
                         decision::make_prompts(engine.text(), request));
  std::vector<std::vector<TokenId>> labels(request.questions.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const Question& question = request.questions[i];
    if (decision::is_settled(question)) continue;
    OKIBI_ASSIGN_OR_RETURN(labels[i],
                           decision::label_tokens(engine.text(), question.options.size()));
  }
  DecisionResult result;
  result.timing.tokenize_ms = (seconds_now() - start) * 1e3;

  OKIBI_ASSIGN_OR_RETURN(const decision::RunResult run,
                         decision::run_prompts(engine.scheduler(), prompts, labels,
                                               {.want_outside_mass = request.want_outside_mass,
                                                .cancel = request.cancel}));
  result.n_prefix_tokens = static_cast<uint32_t>(prompts.n_shared);
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question& question = request.questions[i];
    if (decision::is_settled(question)) {
      result.answers.push_back(decision::settled_answer(question));
      continue;
    }
    OKIBI_ASSIGN_OR_RETURN(Answer answer, decision::read_answer(question, run.outputs[i].labels));
    answer.outside_mass = run.outputs[i].outside_mass;
    answer.n_suffix_tokens = static_cast<uint32_t>(prompts.tokens[i].size() - prompts.n_shared);
    result.n_suffix_tokens += answer.n_suffix_tokens;
    result.answers.push_back(std::move(answer));
  }
  result.timing.prefix_ms = run.prefix_ms;
  result.timing.suffix_ms = run.suffix_ms;
  result.timing.total_ms = (seconds_now() - start) * 1e3;
  return result;
}

}  // namespace okibi
