#include "server/engine_decider.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "base/hash.h"
#include "decide/question.h"

namespace okibi::server {

namespace {

ModelCard make_card(const Engine& engine, const EngineDeciderOptions& options) {
  const ModelInfo& info = engine.info();
  return {.name = options.model_name,
          .description =
              fmt::format("{} ({}), {} layers, {:.0f} M parameters.",
                          info.name.empty() ? options.model_name : info.name, info.architecture,
                          info.n_layers, static_cast<double>(info.n_parameters) / 1e6),
          .release_date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                      fmt::gmtime(static_cast<time_t>(options.model_file_time))),
          .created = options.model_file_time,
          .n_ctx = engine.n_ctx(),
          .max_options = decision::kMaxOptions,
          .max_levels = decision::kMaxLevels,
          .has_vision = engine.has_vision()};
}

// As OpenAI has it: the latest four that the client marked, or three and one that the server picks,
// which here is the end of the state.
std::vector<size_t> last_ends(const WireRequest& request) {
  const size_t n = std::min<size_t>(request.prefix_ends.size(), request.explicit_prefixes ? 4 : 3);
  return {request.prefix_ends.end() - static_cast<ptrdiff_t>(n), request.prefix_ends.end()};
}

DecisionRequest to_decision(const WireRequest& request, const JobOptions& options,
                            const std::optional<Calibration>& calibration) {
  DecisionRequest out{.state = request.state,
                      .questions = request.questions,
                      .want_outside_mass = options.want_detail,
                      .order = options.order,
                      .scope = options.scope,
                      .cancel = options.cancel};
  if (options.calibrate) out.calibration = calibration;
  out.prefix_ends = last_ends(request);
  out.only_prefix_ends = request.explicit_prefixes;
  return out;
}

class EngineDecider : public Decider {
 public:
  EngineDecider(std::shared_ptr<Engine> engine, EngineDeciderOptions options)
      : engine_(std::move(engine)),
        options_(std::move(options)),
        card_(make_card(*engine_, options_)) {}

  const ModelCard& card() const override { return card_; }

  Result<Answers> decide(const WireRequest& request, const JobOptions& options) override {
    Answers answers{.order = options.order};
    DecisionRequest decision = to_decision(request, options, options_.calibration);
    for (const WireImage& image : request.images) {
      if (*options.cancel) return cancelled("the client has gone");
      OKIBI_ASSIGN_OR_RETURN(Picture picture, look_at(image, options.scope, &answers));
      decision.pictures.push_back(std::move(picture));
    }
    OKIBI_ASSIGN_OR_RETURN(answers.result, okibi::decide(*engine_, decision));
    const DecisionResult& result = answers.result;
    answers.n_cached_tokens = result.n_known_prefix_tokens;
    answers.n_cache_write_tokens = result.n_kept_prefix_tokens;
    if (result.n_prefix_tokens > 0) {
      answers.prefixes = {.hits = result.n_known_prefix_tokens > 0,
                          .misses = result.n_known_prefix_tokens == 0};
    }
    for (const Answer& answer : result.answers) {
      if (answer.n_suffix_tokens == 0) continue;  // one outcome: nothing to compute or to know
      (answer.was_kept ? answers.answers.hits : answers.answers.misses) += 1;
      // A question answered from its kept logits is not read again.
      if (answer.was_kept) answers.n_cached_tokens += answer.n_suffix_tokens;
      answers.is_calibrated = answers.is_calibrated || answer.is_calibrated;
    }
    return answers;
  }

 private:
  Result<Picture> look_at(const WireImage& image, const std::string& scope, Answers* answers) {
    const PictureOptions options{.scope = scope};
    Result<Picture> picture = image.is_reference
                                  ? engine_->find_picture(image.sha256, options)
                                  : engine_->encode_picture(bytes_of(image.bytes), options);
    if (!picture.ok()) return picture.status().with_context(image.where);
    (picture->file_was_known ? answers->files.hits : answers->files.misses) += 1;
    answers->views.hits += picture->views_known;
    answers->views.misses += picture->views_encoded;
    answers->decode_ms += picture->decode_seconds * 1e3;
    answers->encode_ms += picture->encode_seconds * 1e3;
    return picture;
  }

  std::shared_ptr<Engine> engine_;
  const EngineDeciderOptions options_;
  const ModelCard card_;
};

}  // namespace

std::unique_ptr<Decider> make_engine_decider(std::shared_ptr<Engine> engine,
                                             EngineDeciderOptions options) {
  return std::make_unique<EngineDecider>(std::move(engine), std::move(options));
}

}  // namespace okibi::server
