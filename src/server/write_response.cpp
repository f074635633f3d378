#include "server/write_response.h"

#include <fmt/format.h>

#include "base/check.h"
#include "decide/answers_json.h"
#include "decide/json_value.h"

namespace okibi::server {

namespace {

using decision::number_json;
using decision::quote_json;

std::string joined(size_t n, auto&& piece) {
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) out += ", ";
    out += piece(i);
  }
  return out;
}

std::string systemone_answer(const Question& question, const QuestionEcho& echo,
                             const Answer& answer) {
  const size_t n = answer.probabilities.size();
  const auto probability = [&](size_t i) { return number_json(answer.probabilities[i]); };
  switch (question.type) {
    case QuestionType::kNoul:
      return fmt::format("{{\"type\": \"noul\", \"noul\": {}}}", number_json(answer.score));
    case QuestionType::kChoice:
      return fmt::format(
          "{{\"type\": \"choice\", \"choice\": {}, \"probabilities\": {{{}}}, \"confidence\": {}}}",
          echo.options[answer.best],
          joined(n, [&](size_t i) { return echo.options[i] + ": " + probability(i); }),
          number_json(answer.confidence));
    case QuestionType::kScore:
      return fmt::format(
          "{{\"type\": \"score\", \"score\": {}, \"legend\": {{{}}}, \"probabilities\": {{{}}}, "
          "\"confidence\": {}}}",
          number_json(answer.score),
          joined(n, [&](size_t i) { return fmt::format("\"{}\": {}", i, echo.options[i]); }),
          joined(n, [&](size_t i) { return fmt::format("\"{}\": {}", i, probability(i)); }),
          number_json(answer.confidence));
  }
  return "null";
}

std::string decisions_answer(const Question& question, const QuestionEcho& echo,
                             const Answer& answer) {
  const std::string name = echo.is_named ? quote_json(echo.id) : "null";
  const size_t n = answer.probabilities.size();
  const auto probability = [&](size_t i) { return number_json(answer.probabilities[i]); };
  switch (question.type) {
    case QuestionType::kNoul:
      return fmt::format("{{\"type\": \"predicate\", \"name\": {}, \"probability\": {}}}", name,
                         number_json(answer.score));
    case QuestionType::kChoice:
      return fmt::format(
          "{{\"type\": \"choice\", \"name\": {}, \"choice\": {}, \"confidence\": {}, "
          "\"probabilities\": [{}]}}",
          name, echo.options[answer.best], number_json(answer.confidence), joined(n, [&](size_t i) {
            return fmt::format("{{\"value\": {}, \"probability\": {}}}", echo.options[i],
                               probability(i));
          }));
    case QuestionType::kScore:
      return fmt::format(
          "{{\"type\": \"score\", \"name\": {}, \"score\": {}, \"confidence\": {}, "
          "\"probabilities\": [{}]}}",
          name, number_json(answer.score), number_json(answer.confidence), joined(n, [&](size_t i) {
            return fmt::format("{{\"label\": {}, \"value\": {}, \"probability\": {}}}",
                               echo.options[i], i, probability(i));
          }));
  }
  return "null";
}

std::string detail(const WireRequest& request, const Answers& answers) {
  const std::string masses = joined(answers.result.answers.size(), [&](size_t i) {
    const double mass = answers.result.answers[i].outside_mass;
    return mass < 0 ? std::string("null") : number_json(mass);
  });
  const std::string images = joined(request.images.size(), [&](size_t i) {
    return quote_json("sha256:" + request.images[i].sha256);
  });
  return fmt::format(
      ", \"okibi\": {{\"outside_mass\": [{}], \"calibrated\": {}, \"order\": \"{}\", \"images\": "
      "[{}]}}",
      masses, answers.is_calibrated, order_name(answers.order), images);
}

}  // namespace

std::string_view order_name(OptionOrder order) {
  return order == OptionOrder::kTwo ? "two" : order == OptionOrder::kAll ? "all" : "off";
}

std::string response_body(const WireRequest& request, const Answers& answers, const ModelCard& card,
                          bool want_detail) {
  const DecisionResult& result = answers.result;
  const size_t n = request.questions.size();
  CHECK(result.answers.size() == n && request.echoes.size() == n, "%zu answers, %zu questions",
        result.answers.size(), n);
  // Nothing is generated; the state counts once however many questions share it.
  const uint64_t n_input = uint64_t{result.n_prefix_tokens} + result.n_suffix_tokens;
  const std::string extra = want_detail ? detail(request, answers) : "";
  if (request.api == Api::kSystemOne) {
    const std::string list = joined(n, [&](size_t i) {
      return quote_json(request.echoes[i].id) + ": " +
             systemone_answer(request.questions[i], request.echoes[i], result.answers[i]);
    });
    return fmt::format(
        "{{\"model\": {}, \"answers\": {{{}}}, \"usage\": {{\"input_tokens\": {}, "
        "\"output_tokens\": 0}}{}}}\n",
        quote_json(card.name), list, n_input, extra);
  }
  const std::string list = joined(n, [&](size_t i) {
    return decisions_answer(request.questions[i], request.echoes[i], result.answers[i]);
  });
  return fmt::format(
      "{{\"model\": {}, \"answers\": [{}], \"usage\": {{\"input_tokens\": {}, "
      "\"input_tokens_details\": {{\"cached_tokens\": {}, \"cache_write_tokens\": {}}}, "
      "\"output_tokens\": 0, \"output_tokens_details\": {{\"reasoning_tokens\": 0}}, "
      "\"total_tokens\": {}}}{}}}\n",
      quote_json(card.name), list, n_input, answers.n_cached_tokens, answers.n_cache_write_tokens,
      n_input, extra);
}

std::string models_body(const ModelCard& card) {
  const std::string name = quote_json(card.name), date = quote_json(card.release_date);
  return fmt::format(
      "{{\"models\": [{{\"name\": {}, \"description\": {}, \"release_date\": {}}}, "
      "{{\"name\": \"jev-latest\", \"description\": {}, \"release_date\": {}}}], "
      "\"object\": \"list\", \"data\": [{{\"id\": {}, \"object\": \"model\", \"created\": {}, "
      "\"owned_by\": \"okibi\"}}]}}\n",
      name, quote_json(card.description), date, quote_json("An alias of " + card.name + "."), date,
      name, card.created);
}

}  // namespace okibi::server
