// See ask_server.h.
#include "apps/ask_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "apps/printable.h"
#include "apps/terminal.h"
#include "base/hash.h"
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

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

// The decoder goes by the bytes; the type is for whoever reads the request on its way.
std::string_view media_type(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG")) return "image/png";
  if (bytes.starts_with("RIFF")) return "image/webp";
  return "image/jpeg";
}

Result<server::HttpReply> post(const ServerCall& call, const std::string& state, bool by_digest) {
  server::HttpCall http{.url = call.url};
  while (http.url.ends_with('/')) http.url.pop_back();
  http.url += "/v1/systemone";
  http.headers["Content-Type"] = "application/json";
  if (!call.key.empty()) http.headers["Authorization"] = "Bearer " + call.key;
  std::string images;
  for (const ServerPicture& picture : call.pictures) {
    images += images.empty() ? ", \"images\": [" : ", ";
    images += decision::quote_json(by_digest ? picture.digest : picture.data_url);
  }
  if (!images.empty()) images += "]";
  http.body = fmt::format("{{\"state\": {}, \"questions\": {}{}}}", decision::quote_json(state),
                          call.questions_json, images);
  return server::http_call(http);
}

}  // namespace

Result<std::vector<ServerPicture>> read_pictures(const std::vector<std::string>& paths) {
  std::vector<ServerPicture> pictures;
  for (const std::string& path : paths) {
    OKIBI_ASSIGN_OR_RETURN(const std::string bytes, read_bytes(path));
    pictures.push_back({fmt::format("data:{};base64,{}", media_type(bytes), base64(bytes)),
                        "sha256:" + to_hex(sha256(bytes_of(bytes)))});
  }
  return pictures;
}

Result<ServerAnswers> ask_server(const ServerCall& call, const DecisionRequest& request) {
  ServerAnswers out;
  OKIBI_ASSIGN_OR_RETURN(server::HttpReply reply, post(call, request.state, /*by_digest=*/true));
  // 404: okibi has not seen it or dropped it. Other servers do not know digests in this place.
  const bool is_refused = reply.status == 404 || reply.status == 400 || reply.status == 422;
  if (is_refused && !call.pictures.empty()) {
    out.sent_pictures = true;
    OKIBI_ASSIGN_OR_RETURN(reply, post(call, request.state, /*by_digest=*/false));
  }
  if (reply.status != 200) return unavailable(error_text(reply));
  OKIBI_ASSIGN_OR_RETURN(const JsonValue json, decision::parse_json(reply.body));
  const JsonValue* answers = json.find("answers");
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
