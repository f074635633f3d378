#include "decide/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "decide/json_value.h"
#include "decide/question.h"

namespace okibi::decision {

namespace {

// The id is shown to the model only where nothing else says what is asked.
std::string instructions_of(const Question& question) {
  if (!question.instructions.empty()) return question.instructions;
  const std::string id = quote_json(question.id);
  switch (question.type) {
    case QuestionType::kNoul:
      return fmt::format("Decide whether {} is true or false.", id);
    case QuestionType::kChoice:
      return fmt::format("Choose the option that fits best for {}.", id);
    case QuestionType::kScore:
      return fmt::format("Choose the level that fits best for {}.", id);
  }
  return "";
}

char letter(size_t i) {
  return static_cast<char>('A' + i);
}

std::string option_line(const Question& question, size_t i) {
  const Option& option = question.options[i];
  std::string line = fmt::format("{}: ", letter(i));
  switch (question.type) {
    case QuestionType::kNoul:
      line += option.key;
      break;
    case QuestionType::kChoice:
      line += quote_json(option.key);
      break;
    case QuestionType::kScore:
      line += fmt::format("{}", i);
      break;
  }
  if (option.description.empty()) return line;
  // A structured description is JSON on one line already.
  const bool is_structured = option.description == option.json;
  return line + " - " + (is_structured ? option.description : quote_json(option.description));
}

std::string letters_list(size_t n) {
  std::string out(1, letter(0));
  for (size_t i = 1; i < n; ++i) {
    out += i + 1 < n ? ", " : " or ";
    out += letter(i);
  }
  return out;
}

Result<std::vector<TokenId>> encode_user_message(const Text& text, std::string content) {
  const Message message{.role = "user", .content = std::move(content)};
  OKIBI_ASSIGN_OR_RETURN(const std::vector<PromptPart> parts,
                         text.chat_parts(std::span(&message, 1), /*enable_thinking=*/false));
  return text.encode_parts(parts);
}

size_t n_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

std::string state_text(std::string_view state) {
  return fmt::format("State:\n{}\n\n", state);
}

std::string question_text(const Question& question) {
  std::string out = fmt::format("Question: {}\n\nOptions:\n", instructions_of(question));
  for (size_t i = 0; i < question.options.size(); ++i) out += option_line(question, i) + '\n';
  out +=
      fmt::format("\nAnswer with exactly one letter: {}.", letters_list(question.options.size()));
  return out;
}

Result<Prompts> make_prompts(const Text& text, const DecisionRequest& request) {
  const std::string state = state_text(request.state);
  Prompts prompts;
  prompts.tokens.resize(request.questions.size());
  const std::vector<TokenId>* first = nullptr;
  size_t n_prompts = 0;
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question& question = request.questions[i];
    if (is_settled(question)) continue;
    auto tokens = encode_user_message(text, state + question_text(question));
    if (!tokens.ok()) {
      return tokens.status().with_context("question " + quote_for_message(question.id));
    }
    prompts.tokens[i] = std::move(tokens).value();
    const std::vector<TokenId>& mine = prompts.tokens[i];
    CHECK(!mine.empty(), "empty prompt");
    if (first == nullptr) {
      first = &mine;
      prompts.n_shared = mine.size();
    }
    prompts.n_shared = std::min({prompts.n_shared, n_common(*first, mine), mine.size() - 1});
    ++n_prompts;
  }
  if (n_prompts == 1) {
    // A single question shares nothing; what it would share with another is its state.
    OKIBI_ASSIGN_OR_RETURN(const std::vector<TokenId> other,
                           encode_user_message(text, state + "."));
    prompts.n_shared = std::min(prompts.n_shared, n_common(*first, other));
  }
  return prompts;
}

Result<std::vector<TokenId>> label_tokens(const Text& text, size_t n) {
  CHECK(n <= kMaxOptions, "n=%zu", n);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; ++i) {
    const char label = letter(i);
    const TokenId id = text.find_by_bytes(std::string_view(&label, 1));
    if (id < 0) {
      return unsupported(
          fmt::format("the model's vocabulary has no token for the letter \"{}\" "
                      "alone, which a question with {} options needs",
                      label, n));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace okibi::decision
