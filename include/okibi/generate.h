// generate: a prompt in, a reply out, token by token. The loop that every caller of a chat would
// write: prefill, sample, stream text, stop for a reason that is told.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/sampler.h"
#include "okibi/session.h"
#include "okibi/status.h"
#include "okibi/text.h"

namespace okibi {

enum class StopReason {
  kEndOfReply,   // the model ended its reply
  kStopString,   // the text reached one of the stop strings
  kMaxTokens,    // max_tokens were generated
  kContextFull,  // the session holds no more
  kCancelled,    // `cancel` was set, or on_text returned false
};
std::string_view stop_reason_name(StopReason reason);  // a phrase for people

struct GenerateOptions {
  uint32_t max_tokens = 512;
  SamplerOptions sampler;
  std::vector<std::string> stop;
  Priority priority = Priority::kNormal;
  const std::atomic<bool>* cancel = nullptr;  // checked between steps
  // Text as it becomes safe to show: whole characters, never the beginning of a stop string. Called
  // on the caller's thread. Returning false ends the reply.
  std::function<bool(std::string_view piece)> on_text;
  // Prompt tokens done so far, called on the engine thread after each step of the prefill.
  std::function<void(size_t done, size_t n_prompt)> on_prefill;
};

struct GenerateTimings {
  size_t n_prompt = 0;     // prompt tokens computed
  size_t n_generated = 0;  // tokens chosen, the one that ended the reply among them
  double prefill_seconds = 0;
  double decode_seconds = 0;  // choosing, and computing what follows the first choice
};

struct GenerateResult {
  std::string text;             // without the stop string or end token
  std::vector<TokenId> tokens;  // as chosen; an end token is the last one
  StopReason stop_reason = StopReason::kMaxTokens;
  GenerateTimings timings;
};

// Appends the prompt to the session and generates. The prompt may be empty when the session already
// has logits. Afterwards the session holds the prompt and the generated tokens but the last one,
// whose successors nobody asked for. Fails when options make no sense or the prompt does not fit;
// then the session is as it was.
Result<GenerateResult> generate(Session& session, std::span<const TokenId> prompt,
                                const GenerateOptions& options);

}  // namespace okibi
