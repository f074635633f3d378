#include "server/engine_decider.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "decide/question.h"

namespace okibi::server {

namespace {

class EngineDecider : public Decider {
 public:
  EngineDecider(std::shared_ptr<Engine> engine, const EngineDeciderOptions& options)
      : engine_(std::move(engine)) {
    const ModelInfo& info = engine_->info();
    card_ = {.name = options.model_name,
             .description =
                 fmt::format("{} ({}), {} layers, {:.0f} M parameters.",
                             info.name.empty() ? options.model_name : info.name, info.architecture,
                             info.n_layers, static_cast<double>(info.n_parameters) / 1e6),
             .release_date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                         fmt::gmtime(static_cast<time_t>(options.model_file_time))),
             .created = options.model_file_time,
             .n_ctx = engine_->n_ctx(),
             .max_options = decision::kMaxOptions,
             .max_levels = decision::kMaxLevels};
  }

  const ModelCard& card() const override { return card_; }

  Result<Answers> decide(const WireRequest& request, const JobOptions& options) override {
    if (!request.images.empty()) {
      return unsupported(
          fmt::format("{}: the model {} was loaded without a vision file, so it reads no pictures",
                      request.images[0].where, card_.name));
    }
    if (options.order != Order::kOff) {
      return unsupported("X-Okibi-Order: only off is available here");
    }
    const DecisionRequest decision{.state = request.state,
                                   .questions = request.questions,
                                   .want_outside_mass = options.want_detail,
                                   .cancel = options.cancel};
    OKIBI_ASSIGN_OR_RETURN(DecisionResult result, okibi::decide(*engine_, decision));
    Answers answers;
    answers.result = std::move(result);
    return answers;
  }

 private:
  std::shared_ptr<Engine> engine_;
  ModelCard card_;
};

}  // namespace

std::unique_ptr<Decider> make_engine_decider(std::shared_ptr<Engine> engine,
                                             const EngineDeciderOptions& options) {
  return std::make_unique<EngineDecider>(std::move(engine), options);
}

}  // namespace okibi::server
