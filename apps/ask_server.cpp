// See ask_server.h.
#include "apps/ask_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "apps/printable.h"
#include "decide/json_value.h"
#include "server/http_client.h"

namespace okibi::apps {
namespace {

using decision::JsonValue;

double number_of(const JsonValue* value) {
  return value != nullptr ? std::strtod(value->text.c_str(), nullptr) : 0;
}

Result<Answer> read_answer(const Question& question, const JsonValue& value) {
  Answer answer{.id = question.id, .type = question.type};
  if (question.type == QuestionType::kNoul) {
    answer.score = number_of(value.find("noul"));
    answer.probabilities = {answer.score, 1 - answer.score};
  } else {
    const JsonValue* probabilities = value.find("probabilities");
    if (probabilities == nullptr || probabilities->items.size() != question.options.size()) {
      return bad_data("the server's answer lacks probabilities of every option");
    }
    for (const JsonValue& p : probabilities->items) answer.probabilities.push_back(number_of(&p));
    answer.score = number_of(value.find("score"));
    answer.confidence = number_of(value.find("confidence"));
  }
  answer.best = static_cast<size_t>(
      std::max_element(answer.probabilities.begin(), answer.probabilities.end()) -
      answer.probabilities.begin());
  return answer;
}

std::string error_text(const server::HttpReply& reply) {
  std::string text = printable(reply.body, 200);
  const Result<JsonValue> json = decision::parse_json(reply.body);
  if (json.ok()) {
    const JsonValue* error = json->find("error");
    if (error != nullptr && error->find("message") != nullptr) error = error->find("message");
    if (error != nullptr && !error->text.empty()) text = printable(error->text, 1000);
  }
  return fmt::format("the server answered {}: {}", reply.status, text);
}

}  // namespace

Result<ServerAnswers> ask_server(const std::string& url, const std::string& key,
                                 const DecisionRequest& request,
                                 const std::string& questions_json) {
  server::HttpCall call{.url = url};
  while (call.url.ends_with('/')) call.url.pop_back();
  call.url += "/v1/systemone";
  call.headers["Content-Type"] = "application/json";
  if (!key.empty()) call.headers["Authorization"] = "Bearer " + key;
  call.body = fmt::format("{{\"state\": {}, \"questions\": {}}}",
                          decision::quote_json(request.state), questions_json);
  OKIBI_ASSIGN_OR_RETURN(server::HttpReply reply, server::http_call(call));
  if (reply.status != 200) return unavailable(error_text(reply));
  OKIBI_ASSIGN_OR_RETURN(const JsonValue json, decision::parse_json(reply.body));
  const JsonValue* answers = json.find("answers");
  ServerAnswers out;
  for (const Question& question : request.questions) {
    const JsonValue* value = answers != nullptr ? answers->find(question.id) : nullptr;
    if (value == nullptr) return bad_data("the server's answer leaves out a question");
    OKIBI_ASSIGN_OR_RETURN(Answer answer, read_answer(question, *value));
    out.result.answers.push_back(std::move(answer));
  }
  out.timing = printable(reply.headers["server-timing"], 400);
  out.body = std::move(reply.body);
  return out;
}

}  // namespace okibi::apps
