#include "apps/state_lines.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "apps/terminal.h"
#include "decide/json_value.h"
#include "decide/question.h"

namespace okibi::apps {
namespace {

using decision::JsonValue;
using Kind = JsonValue::Kind;

// The index of the option that a labelled answer names.
Result<int64_t> right_option(const Question& question, const JsonValue& answer) {
  const auto n = static_cast<int64_t>(question.options.size());
  if (question.type == QuestionType::kScore) {
    int64_t level = -1;
    std::from_chars(answer.text.data(), answer.text.data() + answer.text.size(), level);
    if (answer.is(Kind::kNumber) && level >= 0 && level < n) return level;
    return invalid_argument(fmt::format("the answer to {} must be a level from 0 to {}, found {}",
                                        decision::quote_for_message(question.id), n - 1,
                                        decision::to_json(answer).substr(0, 60)));
  }
  for (int64_t i = 0; i < n; ++i) {
    // A noul's answer is true or false, as a boolean or a string; both have that text.
    if (question.options[static_cast<size_t>(i)].key == answer.text) return i;
  }
  return invalid_argument(fmt::format("the answer to {} is {}, which is none of its {} options",
                                      decision::quote_for_message(question.id),
                                      decision::to_json(answer).substr(0, 60), n));
}

Status read_answers(const JsonValue& answers, const std::vector<Question>& questions,
                    std::vector<int64_t>* right) {
  right->assign(questions.size(), -1);
  for (size_t i = 0; i < questions.size(); ++i) {
    const JsonValue* answer = answers.find(questions[i].id);
    if (answer == nullptr) continue;
    OKIBI_ASSIGN_OR_RETURN((*right)[i], right_option(questions[i], *answer));
  }
  return ok_status();
}

Status read_pictures(const JsonValue& images, const std::string& folder,
                     std::vector<std::string>* paths) {
  if (!images.is(Kind::kArray)) return invalid_argument("\"images\" must be an array of files");
  for (const JsonValue& image : images.items) {
    if (!image.is(Kind::kString)) return invalid_argument("an image must be the name of a file");
    paths->push_back((std::filesystem::path(folder) / image.text).string());
  }
  return ok_status();
}

}  // namespace

Result<StateLine> parse_state_line(std::string_view line, const std::string& folder,
                                   const std::vector<Question>& questions) {
  OKIBI_ASSIGN_OR_RETURN(const JsonValue value, decision::parse_json(line));
  StateLine out;
  if (value.is(Kind::kString)) {
    out.state = value.text;
    return out;
  }
  if (!value.is(Kind::kObject)) {
    return invalid_argument(fmt::format("a line must be a string or an object, not {}",
                                        decision::kind_name(value.kind)));
  }
  if (const JsonValue* id = value.find("id")) out.id = decision::to_json(*id);
  if (const JsonValue* state = value.find("state")) out.state = decision::text_of(*state);
  if (const JsonValue* images = value.find("images")) {
    OKIBI_RETURN_IF_ERROR(read_pictures(*images, folder, &out.pictures));
  }
  if (const JsonValue* own = value.find("questions")) {
    OKIBI_ASSIGN_OR_RETURN(out.questions, parse_questions(decision::to_json(*own)));
  }
  if (const JsonValue* answers = value.find("answers")) {
    OKIBI_RETURN_IF_ERROR(
        read_answers(*answers, out.questions.empty() ? questions : out.questions, &out.right));
  }
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace okibi::apps
