// The prompt of a question: one user message that holds the state, the question, its options with a
// letter each and the wish for one letter, laid out as the model's chat; and the letters' token
// ids. A question's tokens are always those of its whole prompt; that several prompts begin alike
// is found out afterwards, from the tokens. Wording: docs/decisions/0010-prompt-of-a-question.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/decision.h"
#include "okibi/text.h"

namespace okibi::decision {

// What stands before every question: the state.
std::string state_text(std::string_view state);
// The question itself, options one per line, and the instruction to answer with one letter.
std::string question_text(const Question& question);

// The whole prompts, in the order of the questions; empty for questions with one outcome.
struct Prompts {
  std::vector<std::vector<TokenId>> tokens;
  // How many tokens all of them have in common; each has at least one more. 0 without prompts.
  size_t n_shared = 0;
};
Result<Prompts> make_prompts(const Text& text, const DecisionRequest& request);

// Ids of the tokens "A", "B", ...: the first n of them.
Result<std::vector<TokenId>> label_tokens(const Text& text, size_t n);

}  // namespace okibi::decision
