#include "decide/answers_json.h"

#include <fmt/format.h>

#include "base/check.h"
#include "decide/json_value.h"

namespace okibi::decision {

namespace {

std::string key_of(const Question& question, size_t option) {
  return quote_json(question.type == QuestionType::kScore ? fmt::format("{}", option)
                                                          : question.options[option].key);
}

std::string probabilities_json(const Question& question, const Answer& answer) {
  std::string out = "{";
  for (size_t i = 0; i < answer.probabilities.size(); ++i) {
    out += fmt::format("{}{}: {}", i > 0 ? ", " : "", key_of(question, i),
                       number_json(answer.probabilities[i]));
  }
  return out + "}";
}

// The levels as they were sent.
std::string legend_json(const Question& question) {
  std::string out = "{";
  for (size_t i = 0; i < question.options.size(); ++i) {
    const Option& level = question.options[i];
    out += fmt::format("{}\"{}\": {}", i > 0 ? ", " : "", i,
                       level.json.empty() ? quote_json(level.description) : level.json);
  }
  return out + "}";
}

}  // namespace

std::string number_json(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string answer_json(const Question& question, const Answer& answer) {
  CHECK(answer.probabilities.size() == question.options.size(), "%zu probabilities, %zu options",
        answer.probabilities.size(), question.options.size());
  switch (question.type) {
    case QuestionType::kNoul:
      return fmt::format("{{\"type\": \"noul\", \"noul\": {}}}", number_json(answer.score));
    case QuestionType::kChoice:
      return fmt::format(
          "{{\"type\": \"choice\", \"choice\": {}, \"probabilities\": {}, \"confidence\": {}}}",
          key_of(question, answer.best), probabilities_json(question, answer),
          number_json(answer.confidence));
    case QuestionType::kScore:
      return fmt::format(
          "{{\"type\": \"score\", \"score\": {}, \"legend\": {}, \"probabilities\": {}, "
          "\"confidence\": {}}}",
          number_json(answer.score), legend_json(question), probabilities_json(question, answer),
          number_json(answer.confidence));
  }
  return "null";
}

}  // namespace okibi::decision

namespace okibi {

std::string answers_json(const DecisionRequest& request, const DecisionResult& result,
                         std::string_view model_name) {
  CHECK(request.questions.size() == result.answers.size(), "%zu questions, %zu answers",
        request.questions.size(), result.answers.size());
  std::string answers;
  for (size_t i = 0; i < result.answers.size(); ++i) {
    const Question& question = request.questions[i];
    answers += fmt::format("{}{}: {}", i > 0 ? ", " : "", decision::quote_json(question.id),
                           decision::answer_json(question, result.answers[i]));
  }
  // Nothing is generated; the state counts once however many questions share it.
  return fmt::format(
      "{{\"model\": {}, \"answers\": {{{}}}, \"usage\": {{\"input_tokens\": {}, "
      "\"output_tokens\": 0}}}}",
      decision::quote_json(model_name), answers,
      uint64_t{result.n_prefix_tokens} + result.n_suffix_tokens);
}

}  // namespace okibi
