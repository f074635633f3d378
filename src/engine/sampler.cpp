// Choosing the next token. Order: penalties, temperature, softmax, then top-k, top-p and min-p on
// these probabilities, then one draw. Nothing here calls the C library's exp or a standard
// distribution, whose results differ from machine to machine.
#include "okibi/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/sampler_math.h"

namespace okibi {
namespace {

using engine::portable_exp;
using engine::SplitMix64;

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

struct Candidate {
  TokenId id = 0;
  float logit = 0;
  double p = 0;  // not normalised: exp((logit - max) / temperature)
};

// Likelier first; the lower id on a tie.
bool precedes(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Status refuse(const char* name, double value, const char* expected) {
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + "; expected " +
                          expected);
}

Status check_options(const SamplerOptions& o) {
  // Written so that NaN fails too.
  if (!(o.temperature >= 0 && o.temperature <= 1000)) {
    return refuse("temperature", o.temperature, "a number from 0 (greedy) to 1000");
  }
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    return refuse("top-p", o.top_p, "a number above 0 and at most 1 (all)");
  }
  if (!(o.min_p >= 0 && o.min_p <= 1)) {
    return refuse("min-p", o.min_p, "a number from 0 (all) to 1");
  }
  if (!(o.repeat_penalty > 0 && o.repeat_penalty <= 1000)) {
    return refuse("repeat penalty", o.repeat_penalty,
                  "a number above 0 and at most 1000 (1: none)");
  }
  if (!(std::fabs(o.presence_penalty) <= 1000)) {
    return refuse("presence penalty", o.presence_penalty, "a number from -1000 to 1000 (0: none)");
  }
  if (!(std::fabs(o.frequency_penalty) <= 1000)) {
    return refuse("frequency penalty", o.frequency_penalty,
                  "a number from -1000 to 1000 (0: none)");
  }
  return ok_status();
}

double total(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.p;
  return sum;
}

// Sorts only as much of the list as top-p reaches, which for a sharp distribution is little.
void keep_top_p(std::vector<Candidate>& candidates, double top_p, bool is_sorted) {
  const double limit = top_p * total(candidates);
  size_t n_sorted = is_sorted ? candidates.size() : 0;
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == n_sorted) {
      n_sorted = std::min(candidates.size(), std::max<size_t>(256, 8 * n_sorted));
      std::partial_sort(candidates.begin() + i, candidates.begin() + n_sorted, candidates.end(),
                        precedes);
    }
    sum += candidates[i].p;
    if (sum >= limit) {
      candidates.resize(i + 1);
      return;
    }
  }
}

}  // namespace

struct Sampler::State {
  SamplerOptions options;
  std::vector<bool> sampleable;
  TokenId fallback = 0;  // the lowest sampleable id, for logits that say nothing
  SplitMix64 random{0};

  // Kept so that a token allocates nothing once they have grown.
  std::vector<float> logits;
  std::vector<TokenId> recent;
  std::vector<Candidate> candidates;

  bool has_penalties() const {
    return options.penalty_window > 0 &&
           (options.repeat_penalty != 1 || options.presence_penalty != 0 ||
            options.frequency_penalty != 0);
  }
  void apply_penalties(std::span<const TokenId> history);
  TokenId greedy(std::span<const float> row) const;
  TokenId draw(std::span<const float> row);
};

void Sampler::State::apply_penalties(std::span<const TokenId> history) {
  const size_t n = std::min<size_t>(history.size(), options.penalty_window);
  recent.assign(history.end() - static_cast<std::ptrdiff_t>(n), history.end());
  std::sort(recent.begin(), recent.end());
  for (size_t i = 0; i < recent.size();) {
    const TokenId id = recent[i];
    size_t count = 0;
    for (; i < recent.size() && recent[i] == id; ++i) ++count;
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    logit -= options.presence_penalty + static_cast<float>(count) * options.frequency_penalty;
  }
}

TokenId Sampler::State::greedy(std::span<const float> row) const {
  TokenId best = fallback;
  float best_logit = kNegativeInfinity;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > best_logit && sampleable[i]) {
      best_logit = row[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

TokenId Sampler::State::draw(std::span<const float> row) {
  // One number per token whatever the filters leave, so that the sequence depends on the seed only.
  const double u = random.next_unit();
  const TokenId likeliest = greedy(row);
  const float max = row[static_cast<size_t>(likeliest)];
  if (!std::isfinite(max)) return likeliest;

  candidates.clear();
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > kNegativeInfinity && sampleable[i]) {
      candidates.push_back({static_cast<TokenId>(i), row[i], 0});
    }
  }
  const bool is_sorted = options.top_k > 0 && options.top_k < candidates.size();
  if (is_sorted) {
    std::partial_sort(candidates.begin(), candidates.begin() + options.top_k, candidates.end(),
                      precedes);
    candidates.resize(options.top_k);
  }
  for (Candidate& c : candidates) {
    c.p = portable_exp((static_cast<double>(c.logit) - max) / options.temperature);
  }
  if (options.top_p < 1) keep_top_p(candidates, options.top_p, is_sorted);
  if (options.min_p > 0) {
    // The likeliest one has p = 1.
    std::erase_if(candidates, [&](const Candidate& c) { return c.p < options.min_p; });
  }
  double left = u * total(candidates);
  for (const Candidate& c : candidates) {
    left -= c.p;
    if (left < 0) return c.id;
  }
  return likeliest;  // only by rounding
}

Result<Sampler> Sampler::create(const SamplerOptions& options, const Text& text) {
  OKIBI_RETURN_IF_ERROR(check_options(options));
  auto state = std::make_unique<State>();
  state->options = options;
  state->random = SplitMix64(options.seed);
  state->sampleable.resize(static_cast<size_t>(text.n_tokens()));
  state->fallback = -1;
  for (TokenId id = 0; id < text.n_tokens(); ++id) {
    if (!text.is_sampleable(id)) continue;
    state->sampleable[static_cast<size_t>(id)] = true;
    if (state->fallback < 0) state->fallback = id;
  }
  if (state->fallback < 0) {
    return bad_data("the vocabulary of " + std::to_string(text.n_tokens()) +
                    " tokens has none that may be sampled; expected at least one");
  }
  return Sampler(std::move(state));
}

Sampler::Sampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

TokenId Sampler::sample(std::span<const float> logits, std::span<const TokenId> history) {
  State& s = *state_;
  // Rows of the output matrix past the vocabulary mean nothing.
  std::span<const float> row = logits.first(std::min(logits.size(), s.sampleable.size()));
  CHECK(row.size() > static_cast<size_t>(s.fallback), "%zu logits, lowest sampleable id %d",
        row.size(), s.fallback);
  if (s.has_penalties()) {
    s.logits.assign(row.begin(), row.end());
    s.apply_penalties(history);
    row = s.logits;
  }
  return s.options.temperature == 0 ? s.greedy(row) : s.draw(row);
}

}  // namespace okibi
