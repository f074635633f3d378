// The generation loop of okibi/generate.h. Uses the public interface only.
#include "okibi/generate.h"

#include <memory>
#include <utility>

#include "base/clock.h"

namespace okibi {
namespace {

bool is_cancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

// One reply in the making.
class Reply {
 public:
  Reply(Session& session, const GenerateOptions& options, Sampler sampler, GenerateResult* result)
      : session_(session),
        text_(session.engine().text()),
        options_(options),
        sampler_(std::move(sampler)),
        stream_(text_.stream(options.stop)),
        result_(result) {}

  // Sets the reason and the text; fails only for what the engine cannot do.
  Status run() {
    Status status = loop();
    emit(stream_->finish());
    return status;
  }

 private:
  Status loop() {
    for (;;) {
      if (result_->tokens.size() >= options_.max_tokens) return stop(StopReason::kMaxTokens);
      if (is_cancelled(options_)) return stop(StopReason::kCancelled);
      const TokenId id = sampler_.sample(session_.logits(), session_.tokens());
      result_->tokens.push_back(id);
      if (text_.is_end_of_generation(id)) return stop(StopReason::kEndOfReply);
      const bool wanted = emit(stream_->push(id));
      if (stream_->stopped()) return stop(StopReason::kStopString);
      if (!wanted) return stop(StopReason::kCancelled);
      if (result_->tokens.size() >= options_.max_tokens) return stop(StopReason::kMaxTokens);
      if (session_.n_tokens() >= session_.engine().n_ctx()) return stop(StopReason::kContextFull);
      OKIBI_RETURN_IF_ERROR(session_.append({&id, 1}, {.priority = options_.priority}));
    }
  }

  Status stop(StopReason reason) {
    result_->stop_reason = reason;
    return ok_status();
  }

  bool emit(const std::string& piece) {
    if (piece.empty()) return true;
    result_->text += piece;
    return !options_.on_text || options_.on_text(piece);
  }

  Session& session_;
  const Text& text_;
  const GenerateOptions& options_;
  Sampler sampler_;
  std::unique_ptr<TextStream> stream_;
  GenerateResult* result_;
};

Status prefill(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options) {
  AppendOptions append;
  append.priority = options.priority;
  append.cancel = options.cancel;
  if (options.on_prefill) {
    append.on_progress = [&](size_t done) { options.on_prefill(done, prompt.size()); };
  }
  return session.append(prompt, append);
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfReply:
      return "the model ended its reply";
    case StopReason::kStopString:
      return "a stop string was reached";
    case StopReason::kMaxTokens:
      return "the token limit was reached";
    case StopReason::kContextFull:
      return "the context is full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<GenerateResult> generate(Session& session, std::span<const TokenId> prompt,
                                const GenerateOptions& options) {
  OKIBI_ASSIGN_OR_RETURN(Sampler sampler,
                         Sampler::create(options.sampler, session.engine().text()));
  if (prompt.empty() && session.n_tokens() == 0) {
    return invalid_argument(
        "the prompt is empty and so is the session; expected at least one token");
  }
  GenerateResult result;
  const size_t n_before = session.n_tokens();
  const double start = seconds_now();
  if (!prompt.empty()) {
    const Status status = prefill(session, prompt, options);
    result.timings.prefill_seconds = seconds_now() - start;
    result.timings.n_prompt = session.n_tokens() - n_before;
    if (status.code() == StatusCode::kCancelled && is_cancelled(options)) {
      result.stop_reason = StopReason::kCancelled;
      return result;
    }
    if (!status.ok()) return status;
  }
  const double prefilled = seconds_now();
  OKIBI_RETURN_IF_ERROR(Reply(session, options, std::move(sampler), &result).run());
  result.timings.decode_seconds = seconds_now() - prefilled;
  result.timings.n_generated = result.tokens.size();
  return result;
}

}  // namespace okibi
