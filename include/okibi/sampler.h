// Choosing the next token from logits. Deterministic: the same logits, history, options and seed
// give the same token on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "okibi/status.h"
#include "okibi/text.h"

namespace okibi {

struct SamplerOptions {
  float temperature = 0.0f;     // 0: greedy, exact, lowest id on a tie
  uint32_t top_k = 0;           // 0: all
  float top_p = 1.0f;           // 1: all
  float min_p = 0.0f;           // 0: all
  float repeat_penalty = 1.0f;  // 1: none; divides positive logits, multiplies negative ones
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_window = 64;  // last tokens the penalties look at; 0: none
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Refuses options that make no sense, naming them.
  static Result<Sampler> create(const SamplerOptions& options, const Text& text);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // The next token. `history`: the tokens so far, for the penalties. Never an unsampleable id.
  TokenId sample(std::span<const float> logits, std::span<const TokenId> history);

 private:
  struct State;
  explicit Sampler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace okibi
