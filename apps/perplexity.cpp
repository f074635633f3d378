// `okibi perplexity`: how surprised a model is by a text, and how far its predictions are from
// those of another file of the same vocabulary.
//
// Windows as is usual: the text is cut into windows of --ctx tokens, each is read on its own, and
// the tokens of its second half are scored (so that each has half a window of context). What is
// left after the last whole window is not used; a text shorter than one window is scored from its
// second token on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/progress.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "okibi/session.h"

namespace okibi::apps {
namespace {

constexpr uint32_t kDefaultWindow = 512;
// Rows of logits of the other file that wait to be compared: 64 x 250k x 4 bytes = 64 MB.
constexpr size_t kCompareChunk = 64;

struct Flags {
  EngineFlags engine;
  std::string text_path;
  std::string against_path;
};

// Sums over scored tokens; natural logarithms.
struct Score {
  size_t n = 0;
  double nll = 0, nll_squared = 0;

  void add(double value) {
    ++n;
    nll += value;
    nll_squared += value * value;
  }
  double mean() const { return nll / static_cast<double>(n); }
  // Of the mean.
  double standard_error() const {
    if (n < 2) return 0;
    const double variance = nll_squared / static_cast<double>(n) - mean() * mean();
    return std::sqrt(std::max(0.0, variance) / static_cast<double>(n - 1));
  }
};

struct Comparison {
  double kl_sum = 0, kl_max = 0;
  size_t n_same_top = 0;
};

struct Totals {
  Score model, against;
  Comparison comparison;
};

double log_sum_exp(std::span<const float> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float logit : row) sum += std::exp(logit - max);
  return max + std::log(sum);
}

size_t top_token(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// KL(reference || model): the extra surprise of believing the model when the reference is right.
void compare(std::span<const float> reference, std::span<const float> model, Comparison* out) {
  const double reference_z = log_sum_exp(reference), model_z = log_sum_exp(model);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_z;
    kl += std::exp(log_p) * (log_p - (model[i] - model_z));
  }
  kl = std::max(0.0, kl);  // below zero only by rounding
  out->kl_sum += kl;
  out->kl_max = std::max(out->kl_max, kl);
  if (top_token(reference) == top_token(model)) ++out->n_same_top;
}

class Measurement {
 public:
  Measurement(Engine& model, Engine* against, const std::atomic<bool>& cancel)
      : model_(model), against_(against), cancel_(cancel) {}

  // Adds one window, of which positions from `first` on predict what is scored.
  Status add_window(std::span<const TokenId> window, size_t first) {
    OKIBI_ASSIGN_OR_RETURN(const std::unique_ptr<Session> model, model_.new_session());
    std::unique_ptr<Session> against;
    if (against_ != nullptr) {
      OKIBI_ASSIGN_OR_RETURN(against, against_->new_session());
    }
    if (first > 0) {
      const std::span<const TokenId> context = window.first(first);
      OKIBI_RETURN_IF_ERROR(model->append(context, {.cancel = &cancel_}));
      if (against) OKIBI_RETURN_IF_ERROR(against->append(context, {.cancel = &cancel_}));
    }
    const size_t n_predicting = window.size() - 1;
    const size_t chunk = against ? kCompareChunk : n_predicting;
    for (size_t at = first; at < n_predicting; at += chunk) {
      const size_t n = std::min(chunk, n_predicting - at);
      OKIBI_RETURN_IF_ERROR(add_chunk(*model, against.get(), window.subspan(at, n + 1)));
    }
    return ok_status();
  }

  const Totals& totals() const { return totals_; }

 private:
  // `tokens`: the ones to append and, last, one more that is only predicted.
  Status add_chunk(Session& model, Session* against, std::span<const TokenId> tokens) {
    const std::span<const TokenId> appended = tokens.first(tokens.size() - 1);
    const size_t n_vocab = model_.info().n_vocab;
    const auto surprise = [&](size_t i, std::span<const float> row) {
      return log_sum_exp(row) - row[static_cast<size_t>(tokens[i + 1])];
    };
    AppendOptions append = {.cancel = &cancel_};
    if (against != nullptr) {
      rows_.resize(appended.size() * n_vocab);
      append.on_logits = [&](size_t i, std::span<const float> row) {
        std::copy(row.begin(), row.end(), rows_.begin() + static_cast<ptrdiff_t>(i * n_vocab));
        totals_.against.add(surprise(i, row));
      };
      OKIBI_RETURN_IF_ERROR(against->append(appended, append));
    }
    append.on_logits = [&](size_t i, std::span<const float> row) {
      totals_.model.add(surprise(i, row));
      if (against == nullptr) return;
      compare(std::span(rows_).subspan(i * n_vocab, n_vocab), row, &totals_.comparison);
    };
    return model.append(appended, append);
  }

  Engine& model_;
  Engine* against_;
  const std::atomic<bool>& cancel_;
  std::vector<float> rows_;
  Totals totals_;
};

// The token that begins every sequence of this vocabulary; none for most.
std::vector<TokenId> opening_token(const Text& text) {
  const Result<std::vector<TokenId>> ids = text.encode("", false);
  return ids.ok() && ids->size() == 1 ? *ids : std::vector<TokenId>();
}

Status check_same_vocabulary(const Engine& model, const Engine& against, const std::string& text,
                             const std::vector<TokenId>& ids) {
  if (model.info().n_vocab != against.info().n_vocab) {
    return invalid_argument(
        fmt::format("--against has {} logits per token, the model {}; expected the same vocabulary",
                    against.info().n_vocab, model.info().n_vocab));
  }
  OKIBI_ASSIGN_OR_RETURN(const std::vector<TokenId> other, against.text().encode(text, false));
  if (other == ids) return ok_status();
  return invalid_argument(
      "the two files cut this text into different tokens; expected the same vocabulary");
}

void print_results(const Flags& flags, const Totals& totals) {
  const auto print = [](const std::string& name, const Score& score) {
    const double perplexity = std::exp(score.mean());
    std::printf("%s\n", fmt::format("{}: perplexity {:.4f} +- {:.4f}, mean negative "
                                    "log-likelihood {:.6f} over {} tokens",
                                    name, perplexity, perplexity * score.standard_error(),
                                    score.mean(), score.n)
                            .c_str());
  };
  print(flags.engine.options.model_path, totals.model);
  if (flags.against_path.empty() || totals.model.n == 0) return;
  print(flags.against_path, totals.against);
  const auto n = static_cast<double>(totals.model.n);
  std::printf(
      "%s\n",
      fmt::format("KL divergence from {}: mean {:.6f}, maximum {:.6f} | same top token "
                  "{:.2f} %",
                  flags.against_path, totals.comparison.kl_sum / n, totals.comparison.kl_max,
                  100 * static_cast<double>(totals.comparison.n_same_top) / n)
          .c_str());
}

// Where the windows lie and what of each is scored.
struct Plan {
  size_t window = 0, n_windows = 0, first = 0;
};

Result<Plan> plan_windows(size_t n_tokens, uint32_t window) {
  if (n_tokens < 2 || window < 2) {
    return invalid_argument(fmt::format(
        "the text has {} tokens and the window {}; expected at least 2", n_tokens, window));
  }
  if (n_tokens < window) return Plan{n_tokens, 1, 0};
  return Plan{window, n_tokens / window, window / 2};
}

Result<int> run(Flags& flags) {
  EngineOptions& options = flags.engine.options;
  if (options.n_ctx == 0) options.n_ctx = kDefaultWindow;
  OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.text_path));
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> model, flags.engine.open());
  OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> ids, model->text().encode(text, false));
  std::shared_ptr<Engine> against;
  if (!flags.against_path.empty()) {
    EngineFlags other = flags.engine;
    other.options.model_path = flags.against_path;
    other.profile_path.clear();
    OKIBI_ASSIGN_OR_RETURN(against, other.open());
    OKIBI_RETURN_IF_ERROR(check_same_vocabulary(*model, *against, text, ids));
  }
  OKIBI_ASSIGN_OR_RETURN(const Plan plan, plan_windows(ids.size(), options.n_ctx));
  const std::vector<TokenId> opening = opening_token(model->text());

  const std::atomic<bool>& interrupted = catch_interrupts();
  Measurement measurement(*model, against.get(), interrupted);
  Progress progress("reading", "tokens");
  const double start = seconds_now();
  size_t n_done = 0;
  for (; n_done < plan.n_windows && !interrupted; ++n_done) {
    const std::span<TokenId> window = std::span(ids).subspan(n_done * plan.window, plan.window);
    if (!opening.empty()) window[0] = opening[0];
    const Status status = measurement.add_window(window, plan.first);
    if (status.code() == StatusCode::kCancelled && interrupted) break;
    OKIBI_RETURN_IF_ERROR(status);
    progress.update(static_cast<double>((n_done + 1) * plan.window),
                    static_cast<double>(plan.n_windows * plan.window));
  }
  progress.finish();
  const double seconds = seconds_now() - start;
  if (interrupted) {
    std::fprintf(stderr, "%s\n",
                 fmt::format("stopped after {} of {} windows", n_done, plan.n_windows).c_str());
  }
  if (measurement.totals().model.n > 0) print_results(flags, measurement.totals());
  std::fprintf(stderr, "%s\n",
               fmt::format("{} windows of {} tokens in {}, {} tok/s | {}", n_done, plan.window,
                           format_seconds(seconds),
                           format_rate(static_cast<double>(n_done * plan.window) / seconds),
                           model->numeric_identity())
                   .c_str());
  OKIBI_RETURN_IF_ERROR(flags.engine.write_profile(*model));
  return interrupted ? kExitInterrupted : 0;
}

}  // namespace

void add_perplexity(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  flags->engine.options.n_sessions = 1;
  CLI::App* command =
      app.add_subcommand("perplexity", "measure how well a model predicts a text, or two compared");
  flags->engine.add(command);
  command->add_option("-f,--file", flags->text_path, "the text; - reads standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--against", flags->against_path,
                   "a second model, taken as right: mean and maximum KL divergence from it")
      ->type_name("FILE");
  command->footer("--ctx is the window, 512 by default; the second half of each is scored.");
  command->callback([flags, exit_code] {
    const Result<int> code = run(*flags);
    *exit_code = code.ok() ? *code : report(code.status());
  });
}

}  // namespace okibi::apps
