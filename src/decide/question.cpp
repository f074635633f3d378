#include "decide/question.h"

#include <fmt/format.h>

#include <utility>

namespace okibi::decision {

namespace {

using Kind = JsonValue::Kind;

Status wrong(std::string_view id, std::string_view what) {
  return invalid_argument(fmt::format("question {}: {}", quote_for_message(id), what));
}

bool is_text(const JsonValue& value, bool null_allowed) {
  return value.is(Kind::kString) || value.is(Kind::kArray) || value.is(Kind::kObject) ||
         (null_allowed && value.is(Kind::kNull));
}

Option option_of(std::string key, const JsonValue& value) {
  return {.key = std::move(key), .description = text_of(value), .json = to_json(value)};
}

Status read_noul(const JsonValue* criteria, Question* question) {
  question->options = {{.key = "true"}, {.key = "false"}};
  if (criteria == nullptr || criteria->is(Kind::kNull)) criteria = nullptr;
  if (criteria != nullptr) {
    if (!criteria->is(Kind::kObject)) {
      return wrong(question->id, fmt::format("criteria of a noul must be null or an object with "
                                             "the keys \"true\" and \"false\", not {}",
                                             kind_name(criteria->kind)));
    }
    for (size_t i = 0; i < criteria->keys.size(); ++i) {
      const std::string& key = criteria->keys[i];
      if (key != "true" && key != "false") {
        return wrong(question->id, fmt::format("criteria of a noul have the keys \"true\" and "
                                               "\"false\", not {}",
                                               quote_for_message(key)));
      }
      const JsonValue& value = criteria->items[i];
      if (!is_text(value, true)) {
        return wrong(question->id, fmt::format("criteria \"{}\" must be a string, object, array or "
                                               "null, not {}",
                                               key, kind_name(value.kind)));
      }
      question->options[key == "true" ? 0 : 1] = option_of(key, value);
    }
  }
  if (question->instructions.empty() && question->options[0].description.empty() &&
      question->options[1].description.empty()) {
    return wrong(question->id, "a noul needs instructions or criteria; it has neither");
  }
  return ok_status();
}

Status read_choice(const JsonValue* criteria, Question* question) {
  if (criteria == nullptr) {
    return wrong(question->id, "a choice needs criteria: an object of option to description");
  }
  if (criteria->is(Kind::kArray)) {
    return wrong(question->id,
                 "criteria of a choice must be an object of option to description, not an array; "
                 "write {\"first\": null, \"second\": null} for options without description");
  }
  if (!criteria->is(Kind::kObject)) {
    return wrong(question->id, fmt::format("criteria of a choice must be an object of option to "
                                           "description, not {}",
                                           kind_name(criteria->kind)));
  }
  const size_t n = criteria->keys.size();
  if (n == 0) return wrong(question->id, "criteria of a choice need at least 1 option, got 0");
  if (n > kMaxOptions) {
    return unsupported(fmt::format("question {}: a choice may have up to {} options here, got {}",
                                   quote_for_message(question->id), kMaxOptions, n));
  }
  for (size_t i = 0; i < n; ++i) {
    const JsonValue& value = criteria->items[i];
    if (!is_text(value, true)) {
      return wrong(question->id,
                   fmt::format("the description of option {} must be a string, "
                               "object, array or null, not {}",
                               quote_for_message(criteria->keys[i]), kind_name(value.kind)));
    }
    question->options.push_back(option_of(criteria->keys[i], value));
  }
  return ok_status();
}

Status read_score(const JsonValue* criteria, Question* question) {
  if (criteria == nullptr || !criteria->is(Kind::kArray)) {
    return wrong(question->id, fmt::format("criteria of a score must be an array of levels, "
                                           "lowest first, not {}",
                                           criteria ? kind_name(criteria->kind) : "absent"));
  }
  const size_t n = criteria->items.size();
  if (n == 0 || n > kMaxLevels) {
    return wrong(question->id,
                 fmt::format("a score has 1 to {} levels, this one has {}", kMaxLevels, n));
  }
  for (size_t i = 0; i < n; ++i) {
    const JsonValue& value = criteria->items[i];
    if (!is_text(value, false)) {
      return wrong(question->id, fmt::format("level {} must be a string, object or array, not {}",
                                             i, kind_name(value.kind)));
    }
    question->options.push_back(option_of("", value));
  }
  return ok_status();
}

Result<Question> read_question(const std::string& id, const JsonValue& value) {
  if (id.empty()) return invalid_argument("a question has an empty id; every id needs a name");
  if (!value.is(Kind::kObject)) {
    return wrong(id, fmt::format("must be an object, not {}", kind_name(value.kind)));
  }
  Question question{.id = id};
  const JsonValue* type = value.find("type");
  if (type == nullptr) return wrong(id, "has no type; it is \"noul\", \"choice\" or \"score\"");
  if (!type->is(Kind::kString)) {
    return wrong(id, fmt::format("type must be a string, not {}", kind_name(type->kind)));
  }
  if (const JsonValue* instructions = value.find("instructions")) {
    if (!is_text(*instructions, true)) {
      return wrong(id, fmt::format("instructions must be a string, object, array or null, not {}",
                                   kind_name(instructions->kind)));
    }
    question.instructions = text_of(*instructions);
  }
  const JsonValue* criteria = value.find("criteria");
  if (type->text == "noul") {
    question.type = QuestionType::kNoul;
    OKIBI_RETURN_IF_ERROR(read_noul(criteria, &question));
  } else if (type->text == "choice") {
    question.type = QuestionType::kChoice;
    OKIBI_RETURN_IF_ERROR(read_choice(criteria, &question));
  } else if (type->text == "score") {
    question.type = QuestionType::kScore;
    OKIBI_RETURN_IF_ERROR(read_score(criteria, &question));
  } else if (type->text == "box") {
    return unsupported(
        fmt::format("question {}: the type \"box\" (a place in a picture) is not "
                    "answered here; use \"noul\", \"choice\" or \"score\"",
                    quote_for_message(id)));
  } else {
    return wrong(id, fmt::format("type must be \"noul\", \"choice\" or \"score\", not {}",
                                 quote_for_message(type->text)));
  }
  return question;
}

Result<std::vector<Question>> read_questions(const JsonValue& value) {
  if (!value.is(Kind::kObject)) {
    return invalid_argument(fmt::format("questions must be an object of id to question, not {}",
                                        kind_name(value.kind)));
  }
  if (value.keys.empty()) return invalid_argument("questions needs at least 1 question, got 0");
  std::vector<Question> questions;
  questions.reserve(value.keys.size());
  for (size_t i = 0; i < value.keys.size(); ++i) {
    OKIBI_ASSIGN_OR_RETURN(Question question, read_question(value.keys[i], value.items[i]));
    questions.push_back(std::move(question));
  }
  return questions;
}

}  // namespace

std::string text_of(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "";
    case Kind::kString:
      return value.text;
    case Kind::kArray:
    case Kind::kObject:
      return value.items.empty() ? "" : to_json(value);
    default:
      return to_json(value);
  }
}

Result<QuestionFile> parse_question_file(std::string_view json) {
  OKIBI_ASSIGN_OR_RETURN(const JsonValue value, parse_json(json));
  QuestionFile file;
  // A question of the id "questions" has a string as its type; a body's questions may have one
  // called "type", but that is an object.
  const JsonValue* inner = value.find("questions");
  const JsonValue* type = inner != nullptr ? inner->find("type") : nullptr;
  const bool is_body = inner != nullptr && !(type != nullptr && type->is(Kind::kString));
  const JsonValue& questions = is_body ? *inner : value;
  OKIBI_ASSIGN_OR_RETURN(file.questions, read_questions(questions));
  file.json = to_json(questions);
  if (const JsonValue* state = is_body ? value.find("state") : nullptr) {
    if (!is_text(*state, false)) {
      return invalid_argument(
          fmt::format("state must be a string, object or array, not {}", kind_name(state->kind)));
    }
    file.state = text_of(*state);
  }
  return file;
}

}  // namespace okibi::decision

namespace okibi {

Result<std::vector<Question>> parse_questions(std::string_view json) {
  OKIBI_ASSIGN_OR_RETURN(const decision::JsonValue value, decision::parse_json(json));
  return decision::read_questions(value);
}

}  // namespace okibi
