#include "apps/bench_decisions_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "apps/vision_file.h"
#include "base/clock.h"
#include "base/hash.h"
#include "engine/open_backend.h"
#include "model/vision/vision_hparams.h"
#include "okibi/session.h"
#include "reuse/answer_cache.h"

namespace okibi::apps {
namespace {

constexpr uint32_t kLongPrefill = 512;

struct Counters {
  std::array<uint64_t, kDecisionsLevels> hits = {}, misses = {};
};

Counters counters_of(Engine& engine) {
  const VisionCacheStats vision = engine.vision_cache_stats();
  const DecisionCacheStats decisions = engine.decision_cache_stats();
  return {{vision.bytes.hits, vision.views.hits, decisions.states.hits, decisions.answers.hits},
          {vision.bytes.misses, vision.views.misses, decisions.states.misses,
           decisions.answers.misses}};
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

void add(DecisionsSample* sum, const DecisionsSample& part) {
  for (size_t i = 0; i < kDecisionsTimes; ++i) sum->ms[i] += part.ms[i];
  for (size_t i = 0; i < kDecisionsLevels; ++i) {
    sum->hits[i] += part.hits[i];
    sum->misses[i] += part.misses[i];
  }
  sum->n_prefix_tokens = part.n_prefix_tokens;
  sum->n_suffix_tokens += part.n_suffix_tokens;
}

class Measurement {
 public:
  Measurement(const DecisionsPlan& plan, const std::function<void(const std::string&)>& say)
      : plan_(plan), say_(say) {}

  Result<DecisionsResult> run() && {
    OKIBI_RETURN_IF_ERROR(open());
    result_.load_average[0] = load_average();
    OKIBI_RETURN_IF_ERROR(measure_roofs());
    OKIBI_RETURN_IF_ERROR(warm_up());
    OKIBI_RETURN_IF_ERROR(run_blocks());
    OKIBI_RETURN_IF_ERROR(run_cases());
    result_.load_average[1] = load_average();
    OKIBI_RETURN_IF_ERROR(measure_roofs());
    result_.encoder_peak = peak_of_encoder();
    return std::move(result_);
  }

 private:
  Status open() {
    EngineOptions off = plan_.options;
    off.vision_cache_mib = off.state_cache_mib = off.answer_cache_mib = 0;
    say_("loading the model twice: without and with reuse");
    OKIBI_ASSIGN_OR_RETURN(off_, Engine::open(off));
    OKIBI_ASSIGN_OR_RETURN(on_, Engine::open(plan_.options));
    result_.identity = on_->numeric_identity();
    result_.n_threads = on_->n_threads();
    OKIBI_ASSIGN_OR_RETURN(vision_,
                           read_vision_file(plan_.options.model_path, plan_.options.mmproj_path));
    return ok_status();
  }

  Status measure_roofs() {
    say_("measuring the roofs");
    OKIBI_ASSIGN_OR_RETURN(const ops::Roofs now,
                           engine::measure_roofs({.cpu_level = plan_.options.cpu_level,
                                                  .n_threads = plan_.options.n_threads},
                                                 on_->info().file_bytes));
    ops::Roofs& best = result_.roofs;
    best.int8_name = now.int8_name;
    best.int8_ops_per_s = std::max(best.int8_ops_per_s, now.int8_ops_per_s);
    best.bf16_ops_per_s = std::max(best.bf16_ops_per_s, now.bf16_ops_per_s);
    best.float_ops_per_s = std::max(best.float_ops_per_s, now.float_ops_per_s);
    best.read_bytes_per_s = std::max(best.read_bytes_per_s, now.read_bytes_per_s);
    return ok_status();
  }

  // Levels with a bfloat16 unit round the factors of products of Q8_0, and split those of 16-bit
  // files into sums (decision 0014).
  EncoderPeak peak_of_encoder() const {
    const ops::Roofs& r = result_.roofs;
    const DType type = vision_.layer_type;
    if (plan_.options.activations != ActivationType::kF32 && r.bf16_ops_per_s > 0) {
      if (type == DType::kQ8_0) return {"bfloat16", r.bf16_ops_per_s, false};
      if (type == DType::kBF16) return {"bfloat16, two products each", r.bf16_ops_per_s / 2, false};
      if (type == DType::kF16)
        return {"bfloat16, three products each", r.bf16_ops_per_s / 3, false};
    }
    if (plan_.options.activations == ActivationType::kF32 || !vision_.is_quantised()) {
      return {"float32", r.float_ops_per_s, false};
    }
    return {r.int8_name, r.int8_ops_per_s, r.bf16_ops_per_s > 0};
  }

  // Memory is touched for the first time here, so that no block pays for it. Its answers are what
  // all others are held against.
  Status warm_up() {
    say_("warming up");
    OKIBI_RETURN_IF_ERROR(ask(*off_, plan_.questions, 0).status());
    OKIBI_ASSIGN_OR_RETURN(const DecisionsSample sample, ask(*on_, plan_.questions, 0));
    result_.prefill[0].n_tokens = std::max(sample.n_suffix_tokens, 1u);
    result_.prefill[1].n_tokens = kLongPrefill;
    for (PrefillRate& rate : result_.prefill) {
      OKIBI_RETURN_IF_ERROR(prefill(rate.n_tokens).status());
    }
    return ok_status();
  }

  // The picture's file and questions in, answers out. `first`: index of the first question asked.
  Result<DecisionsSample> ask(Engine& engine, const std::vector<Question>& questions,
                              size_t first) {
    DecisionRequest request{.state = plan_.state, .questions = questions};
    const Counters before = counters_of(engine);
    const double start = seconds_now();
    OKIBI_ASSIGN_OR_RETURN(Picture picture, engine.encode_picture(bytes_of(plan_.image)));
    request.pictures.push_back(std::move(picture));
    OKIBI_ASSIGN_OR_RETURN(const DecisionResult decided, decide(engine, request));
    const double total_ms = (seconds_now() - start) * 1e3;
    const Counters after = counters_of(engine);

    const Picture& seen = request.pictures[0];
    DecisionsSample sample;
    sample.ms = {total_ms,
                 (seen.decode_seconds - seen.resize_seconds) * 1e3,
                 seen.resize_seconds * 1e3,
                 seen.encode_seconds * 1e3,
                 decided.timing.tokenize_ms,
                 decided.timing.prefix_ms,
                 decided.timing.suffix_ms,
                 0};
    sample.ms[kRest] = total_ms;
    for (size_t i = kDecode; i < kRest; ++i) sample.ms[kRest] -= sample.ms[i];
    for (size_t i = 0; i < kDecisionsLevels; ++i) {
      sample.hits[i] = after.hits[i] - before.hits[i];
      sample.misses[i] = after.misses[i] - before.misses[i];
    }
    sample.n_prefix_tokens = decided.n_prefix_tokens;
    sample.n_suffix_tokens = decided.n_suffix_tokens;
    note_picture(seen);
    compare(decided, first);
    return sample;
  }

  void note_picture(const Picture& seen) {
    if (!result_.picture.views.empty()) return;
    result_.picture = seen;
    for (Picture::View& view : result_.picture.views) {
      view.rows = nullptr;  // they would stay in memory, pinned
      const int64_t n_patches =
          int64_t{view.width / vision_.patch} * int64_t{view.height / vision_.patch};
      result_.encoder_matrix_ops += 2 * vision_.matrix_macs(n_patches);
      result_.encoder_attention_ops += 2 * vision_.attention_macs(n_patches);
    }
  }

  void compare(const DecisionResult& decided, size_t first) {
    DecisionsAgreement& a = result_.agreement;
    for (size_t i = 0; i < decided.answers.size(); ++i) {
      const Answer& answer = decided.answers[i];
      if (first + i == reference_.size()) {
        reference_.push_back(answer);
        result_.choices.push_back(answer.best);
        continue;
      }
      const Answer& expected = reference_[first + i];
      ++a.n_answers;
      a.n_other_choices += answer.best != expected.best;
      a.n_other_bits += answer.label_logits_hash != expected.label_logits_hash;
      for (size_t k = 0; k < answer.probabilities.size(); ++k) {
        a.largest_difference = std::max(
            a.largest_difference, std::abs(answer.probabilities[k] - expected.probabilities[k]));
      }
    }
  }

  // Fails unless the caches served a request as assumed: what was asked of a level that should have
  // been empty was not there, what should have been there was.
  Status check_levels(const std::string& where, const DecisionsSample& sample,
                      std::array<bool, kDecisionsLevels> is_known) const {
    for (size_t i = 0; i < kDecisionsLevels; ++i) {
      // Equal tiles of one picture are one view: a new picture may meet itself.
      const bool may_hit = is_known[i] || i == kViews;
      const bool may_miss = !is_known[i];
      if ((may_hit || sample.hits[i] == 0) && (may_miss || sample.misses[i] == 0)) continue;
      return bad_data(fmt::format(
          "{}: {} hits and {} misses of {}, expected no {}; what was measured is not what this "
          "case is about (a budget that is too small?)",
          where, sample.hits[i], sample.misses[i], kDecisionsLevelNames[i],
          is_known[i] ? "misses" : "hits"));
    }
    return ok_status();
  }

  Status run_blocks() {
    constexpr std::array<bool, 4> kIsOn = {false, true, true, false};
    for (size_t b = 0; b < kIsOn.size(); ++b) {
      DecisionsBlock& block = result_.blocks[b];
      block.is_on = kIsOn[b];
      const std::string where =
          fmt::format("block {}, reuse {}", b + 1, block.is_on ? "on" : "off");
      say_(where);
      Engine& engine = block.is_on ? *on_ : *off_;
      forget_everything();
      for (uint32_t i = 0; i <= plan_.n_repeats; ++i) {
        OKIBI_ASSIGN_OR_RETURN(const DecisionsSample sample, ask(engine, plan_.questions, 0));
        const bool is_known = block.is_on && i > 0;
        OKIBI_RETURN_IF_ERROR(
            check_levels(where, sample, {is_known, is_known, is_known, is_known}));
        block.samples.push_back(sample);
      }
    }
    return ok_status();
  }

  Status run_cases() {
    for (uint32_t i = 0; i < plan_.n_repeats; ++i) {
      say_(fmt::format("cases, round {} of {}", i + 1, plan_.n_repeats));
      OKIBI_RETURN_IF_ERROR(ask_one_by_one());
      forget_everything();
      OKIBI_RETURN_IF_ERROR(ask_case(kNewImage, {false, false, false, false}));
      on_->answer_cache().clear();
      OKIBI_RETURN_IF_ERROR(ask_case(kNewQuestions, {true, true, true, false}));
      OKIBI_RETURN_IF_ERROR(ask_case(kIdentical, {true, true, true, true}));
      for (PrefillRate& rate : result_.prefill) {
        OKIBI_ASSIGN_OR_RETURN(const double seconds, prefill(rate.n_tokens));
        rate.seconds.push_back(seconds);
      }
    }
    return ok_status();
  }

  Status ask_one_by_one() {
    DecisionsSample sum;
    for (size_t q = 0; q < plan_.questions.size(); ++q) {
      OKIBI_ASSIGN_OR_RETURN(const DecisionsSample one, ask(*off_, {plan_.questions[q]}, q));
      OKIBI_RETURN_IF_ERROR(
          check_levels(kDecisionsCaseNames[kNoReuse], one, {false, false, false, false}));
      add(&sum, one);
    }
    result_.cases[kNoReuse].push_back(sum);
    return ok_status();
  }

  Status ask_case(DecisionsCase which, std::array<bool, kDecisionsLevels> is_known) {
    OKIBI_ASSIGN_OR_RETURN(const DecisionsSample sample, ask(*on_, plan_.questions, 0));
    result_.cases[which].push_back(sample);
    return check_levels(kDecisionsCaseNames[which], sample, is_known);
  }

  void forget_everything() {
    on_->clear_vision_cache();
    on_->clear_decision_caches();
  }

  // Seconds for n tokens of plain text, on the engine whose caches nobody counts.
  Result<double> prefill(uint32_t n_tokens) {
    if (text_.empty()) {
      std::string text;
      while (text.size() < size_t{8} * std::max(n_tokens, kLongPrefill)) {
        text += "The kiln was opened at noon and the embers were carried to the next house. ";
      }
      OKIBI_ASSIGN_OR_RETURN(text_, off_->text().encode(text, /*parse_special=*/false));
    }
    OKIBI_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, off_->new_session());
    std::vector<TokenId> tokens(n_tokens);
    for (size_t i = 0; i < n_tokens; ++i) tokens[i] = text_[i % text_.size()];
    const double start = seconds_now();
    OKIBI_RETURN_IF_ERROR(session->append(tokens));
    return seconds_now() - start;
  }

  const DecisionsPlan& plan_;
  const std::function<void(const std::string&)>& say_;
  std::shared_ptr<Engine> off_, on_;
  model::VisionHparams vision_;
  std::vector<TokenId> text_;
  std::vector<Answer> reference_;
  DecisionsResult result_;
};

}  // namespace

Result<DecisionsResult> run_decisions_bench(const DecisionsPlan& plan,
                                            const std::function<void(const std::string&)>& say) {
  return Measurement(plan, say).run();
}

std::vector<double> times_of(std::span<const DecisionsSample> samples, DecisionsTime time) {
  std::vector<double> values;
  for (const DecisionsSample& sample : samples) values.push_back(sample.ms[time]);
  return values;
}

}  // namespace okibi::apps
