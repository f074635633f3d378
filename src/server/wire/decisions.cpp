// OpenAI's Decisions format: messages and tool calls become one state, in their order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "decide/question.h"
#include "server/wire/read_request.h"

namespace okibi::server {

namespace {

using decision::JsonValue;
using decision::kind_name;
using decision::quote_for_message;
using Kind = JsonValue::Kind;
using Loc = std::vector<std::string>;

constexpr size_t kMaxDecisionQuestions = 400, kMaxChoices = 255;
constexpr std::array kMembers = {
    "model", "input", "questions", "prompt_cache_key", "prompt_cache_options", "safety_identifier",
    "stream"};

Loc inside(Loc loc, std::string element) {
  loc.push_back(std::move(element));
  return loc;
}

class Reader {
 public:
  Reader(const JsonValue& body, WireRequest* request)
      : body_(body), request_(*request), images_(&request->images) {}

  ApiError read() {
    const bool well = check_members() && read_cache_options() && read_input() && read_questions();
    if (!well && error_.status == 0) return make_error(422, "INVALID_REQUEST", "invalid request");
    return std::move(error_);
  }

 private:
  bool fail(Loc loc, std::string message, std::string type) {
    error_ = issue_error(std::move(loc), std::move(message), std::move(type));
    return false;
  }

  // A member that is a string, null or absent.
  bool read_string(const JsonValue& owner, const char* key, const Loc& loc, std::string* out) {
    const JsonValue* value = owner.find(key);
    if (value == nullptr || value->is(Kind::kNull)) return true;
    if (!value->is(Kind::kString)) {
      return fail(inside(loc, key), fmt::format("must be a string, not {}", kind_name(value->kind)),
                  "string_type");
    }
    *out = value->text;
    return true;
  }

  bool check_members() {
    for (const std::string& key : body_.keys) {
      if (std::find(kMembers.begin(), kMembers.end(), key) != kMembers.end()) continue;
      error_ = make_error(
          400, "UNKNOWN_MEMBER",
          fmt::format("the body has a member {}, which is not known here", quote_for_message(key)));
      return false;
    }
    const JsonValue* stream = body_.find("stream");
    if (stream != nullptr && stream->text != "false" && !stream->is(Kind::kNull)) {
      return fail({"body", "stream"}, "answers are not streamed", "literal_error");
    }
    std::string ignored;
    return read_string(body_, "model", {"body"}, &request_.model) &&
           read_string(body_, "prompt_cache_key", {"body"}, &request_.cache_key) &&
           read_string(body_, "safety_identifier", {"body"}, &ignored);
  }

  bool read_cache_options() {
    const JsonValue* options = body_.find("prompt_cache_options");
    if (options == nullptr || options->is(Kind::kNull)) return true;
    const Loc loc = {"body", "prompt_cache_options"};
    std::string mode = "implicit", ttl;
    if (!options->is(Kind::kObject)) return fail(loc, "must be an object", "model_type");
    if (!read_string(*options, "mode", loc, &mode) || !read_string(*options, "ttl", loc, &ttl)) {
      return false;
    }
    if (mode != "implicit" && mode != "explicit") {
      return fail(inside(loc, "mode"), "must be \"implicit\" or \"explicit\"", "literal_error");
    }
    request_.explicit_prefixes = mode == "explicit";
    return true;
  }

  bool read_input() {
    const JsonValue* input = body_.find("input");
    if (input == nullptr) return fail({"body", "input"}, "is missing", "missing");
    if (input->is(Kind::kString)) {
      request_.state = input->text;
      return true;
    }
    if (!input->is(Kind::kArray)) {
      return fail({"body", "input"}, "must be a string or an array of items", "model_type");
    }
    for (size_t i = 0; i < input->items.size(); ++i) {
      if (!read_item(input->items[i], {"body", "input", fmt::format("{}", i)})) return false;
    }
    return true;
  }

  // What came first as a user's message stands bare; everything else says whose it is, so that a
  // prefix of the items is a prefix of the text.
  void begin_item(std::string_view title) {
    std::string& state = request_.state;
    const bool is_first = !has_items_;
    has_items_ = true;
    if (!is_first) state += "\n\n";
    if (!is_first || title != "User") state += fmt::format("{}: ", title);
  }

  bool read_item(const JsonValue& item, const Loc& loc) {
    if (!item.is(Kind::kObject)) return fail(loc, "must be an object", "model_attributes_type");
    std::string type = "message";
    if (!read_string(item, "type", loc, &type)) return false;
    if (type == "message") return read_message(item, loc);
    if (type == "function_call" || type == "custom_tool_call") {
      return read_call(item, type == "function_call" ? "arguments" : "input", loc);
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return read_output(item, loc);
    }
    return fail(inside(loc, "type"),
                fmt::format("an item of the type {} is not known here", quote_for_message(type)),
                "union_tag_invalid");
  }

  bool read_message(const JsonValue& item, const Loc& loc) {
    std::string role;
    if (!read_string(item, "role", loc, &role)) return false;
    const std::string_view title = role_title(role);
    if (title.empty() || role == "tool") {
      return fail(inside(loc, "role"),
                  "must be \"user\", \"developer\", \"system\" or \"assistant\"", "literal_error");
    }
    begin_item(title);
    return read_parts(item, "content", role, loc);
  }

  bool read_parts(const JsonValue& item, const char* key, std::string_view role, const Loc& loc) {
    const JsonValue* content = item.find(key);
    if (content == nullptr) return fail(inside(loc, key), "is missing", "missing");
    const PartsReader parts{images_, &error_, &request_.prefix_ends};
    return parts.read(*content, inside(loc, key), role, &request_.state);
  }

  bool read_call(const JsonValue& item, const char* arguments, const Loc& loc) {
    std::string name, id, text;
    if (!read_string(item, "name", loc, &name) || !read_string(item, "call_id", loc, &id) ||
        !read_string(item, arguments, loc, &text)) {
      return false;
    }
    if (name.empty() || id.empty()) {
      return fail(inside(loc, name.empty() ? "name" : "call_id"), "is missing", "missing");
    }
    calls_.insert({id, name});
    begin_item("Call of " + name);
    request_.state += text;
    return true;
  }

  bool read_output(const JsonValue& item, const Loc& loc) {
    std::string id;
    if (!read_string(item, "call_id", loc, &id)) return false;
    const auto call = calls_.find(id);
    if (call == calls_.end()) {
      return fail(inside(loc, "call_id"),
                  fmt::format("no earlier call has the id {}", quote_for_message(id)),
                  "value_error");
    }
    begin_item("Output of " + call->second);
    return read_parts(item, "output", "tool", loc);
  }

  bool read_questions() {
    const JsonValue* questions = body_.find("questions");
    const Loc loc = {"body", "questions"};
    if (questions == nullptr) return fail(loc, "is missing", "missing");
    if (!questions->is(Kind::kArray)) return fail(loc, "must be an array", "list_type");
    const size_t n = questions->items.size();
    if (n == 0 || n > kMaxDecisionQuestions) {
      return fail(loc, fmt::format("has 1 to {} questions, got {}", kMaxDecisionQuestions, n),
                  n == 0 ? "too_short" : "too_long");
    }
    for (size_t i = 0; i < n; ++i) {
      if (!read_question(questions->items[i], inside(loc, fmt::format("{}", i)))) return false;
    }
    return true;
  }

  bool read_question(const JsonValue& value, const Loc& loc) {
    if (!value.is(Kind::kObject)) return fail(loc, "must be an object", "model_attributes_type");
    Question question;
    QuestionEcho echo;
    std::string type;
    const JsonValue* name = value.find("name");
    echo.is_named = name != nullptr && !name->is(Kind::kNull);
    if (!read_string(value, "type", loc, &type) || !read_string(value, "name", loc, &echo.id)) {
      return false;
    }
    question.id = echo.id;
    if (!read_instructions(value, loc, &question)) return false;
    bool well = true;
    if (type == "predicate") {
      question.options = {{.key = "true"}, {.key = "false"}};
    } else if (type == "choice") {
      well = read_choices(value, loc, &question, &echo);
    } else if (type == "score") {
      well = read_levels(value, loc, &question, &echo);
    } else {
      return fail(inside(loc, "type"),
                  fmt::format("must be \"predicate\", \"choice\" or \"score\", not {}",
                              quote_for_message(type)),
                  "union_tag_invalid");
    }
    request_.questions.push_back(std::move(question));
    request_.echoes.push_back(std::move(echo));
    return well;
  }

  bool read_instructions(const JsonValue& value, const Loc& loc, Question* question) {
    const JsonValue* instructions = value.find("instructions");
    const Loc place = inside(loc, "instructions");
    if (instructions == nullptr) return fail(place, "is missing", "missing");
    const PartsReader parts{images_, &error_};
    if (!parts.read(*instructions, place, "user", &question->instructions)) return false;
    if (question->instructions.empty()) return fail(place, "must not be empty", "too_short");
    return true;
  }

  bool read_choices(const JsonValue& value, const Loc& loc, Question* question,
                    QuestionEcho* echo) {
    question->type = QuestionType::kChoice;
    const JsonValue* choices = value.find("choices");
    const Loc place = inside(loc, "choices");
    const size_t n = choices != nullptr ? choices->items.size() : 0;
    if (choices == nullptr || !choices->is(Kind::kArray) || n < 2 || n > kMaxChoices) {
      return fail(place, fmt::format("must be an array of 2 to {} choices", kMaxChoices),
                  "list_type");
    }
    std::set<std::string> seen;
    for (size_t i = 0; i < n; ++i) {
      const Loc at = inside(place, fmt::format("{}", i));
      const JsonValue* name = choices->items[i].find("value");
      if (name == nullptr || !(name->is(Kind::kString) || name->is(Kind::kBool))) {
        return fail(inside(at, "value"), "must be a string or a boolean", "model_type");
      }
      std::string json = decision::to_json(*name);
      if (!seen.insert(json).second) {
        return fail(inside(at, "value"), "stands twice among the choices", "value_error");
      }
      Option option{.key = name->text};
      if (!read_string(choices->items[i], "description", at, &option.description)) return false;
      question->options.push_back(std::move(option));
      echo->options.push_back(std::move(json));
    }
    return true;
  }

  bool read_levels(const JsonValue& value, const Loc& loc, Question* question, QuestionEcho* echo) {
    question->type = QuestionType::kScore;
    const JsonValue* levels = value.find("levels");
    const Loc place = inside(loc, "levels");
    const size_t n = levels != nullptr ? levels->items.size() : 0;
    if (levels == nullptr || !levels->is(Kind::kArray) || n == 0 || n > kMaxChoices) {
      return fail(place, fmt::format("must be an array of 1 to {} levels", kMaxChoices),
                  "list_type");
    }
    for (size_t i = 0; i < n; ++i) {
      const Loc at = inside(place, fmt::format("{}", i));
      const JsonValue* name = levels->items[i].find("label");
      if (name == nullptr || !name->is(Kind::kString)) {
        return fail(inside(at, "label"), "must be a string", "string_type");
      }
      std::string description;
      if (!read_string(levels->items[i], "description", at, &description)) return false;
      question->options.push_back(
          {.description = description.empty() ? name->text : name->text + ": " + description});
      echo->options.push_back(decision::quote_json(name->text));
    }
    return true;
  }

  const JsonValue& body_;
  WireRequest& request_;
  Images images_;
  bool has_items_ = false;
  std::map<std::string, std::string> calls_;  // id to name
  ApiError error_;
};

}  // namespace

ApiError read_decisions(const JsonValue& body, WireRequest* request) {
  return Reader(body, request).read();
}

}  // namespace okibi::server
