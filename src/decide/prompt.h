// The prompt of a question: one user message that holds the pictures, the state, the question, its
// options with a label each and the wish for one label, laid out as the model's chat; and the
// labels' token ids. A question's tokens are always those of its whole prompt. The state's tokens
// are encoded once for all questions where the vocabulary is known to cut after it; where it is
// not, that prompts begin alike is found out afterwards, from the tokens. Wording:
// docs/decisions/0010-prompt-of-a-question.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/decision.h"
#include "okibi/engine.h"
#include "okibi/picture.h"
#include "okibi/text.h"

namespace okibi::decision {

// A name for an option and the token that says it.
struct Label {
  std::string text;
  TokenId id = -1;
};

// The first n labels: the letters A to Z, then, where more are needed, two letters (AA, AB, ...)
// and decimal numbers, those that the vocabulary has as one token. Fails when there are not enough.
Result<std::vector<Label>> choose_labels(const Text& text, size_t n);

// What stands before every question: the state.
std::string state_text(std::string_view state);
// The question itself, options one per line in the given order (indices of question.options), the
// i-th shown under the i-th label, and the instruction to answer with one label.
std::string question_text(const Question& question, std::span<const size_t> order,
                          std::span<const Label> labels);

// The orders in which a question is asked, the given one first.
std::vector<std::vector<size_t>> orders_of(const Question& question, OptionOrder mode);

// One prompt: a question in one order.
struct AskedPrompt {
  size_t question = 0;  // index
  std::vector<size_t> order;
  Prompt prompt;
  std::vector<TokenId> labels;  // in the order shown
};

// All prompts, question by question; none for questions with one outcome.
struct Prompts {
  std::vector<AskedPrompt> asked;
  // How many tokens all of them have in common: pictures and state. Each has at least one more.
  size_t n_shared = 0;
  // Where among those tokens a prefix ends that is kept for other requests, ascending; n_shared is
  // one unless only the request's own ends are wanted.
  std::vector<size_t> kept_ends;
};
Result<Prompts> make_prompts(Engine* engine, const Text& text, const DecisionRequest& request);

}  // namespace okibi::decision
