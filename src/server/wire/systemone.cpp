// The System One format: state, questions, assets, images. Collects what is wrong with questions,
// so that a client learns everything at once.
#include <fmt/format.h>

#include <algorithm>
#include <array>
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

constexpr size_t kMaxWireOptions = 255;
constexpr std::array kMembers = {"model", "state", "questions", "assets", "images", "stream"};

bool is_text(const JsonValue& value, bool null_allowed) {
  return value.is(Kind::kString) || value.is(Kind::kArray) || value.is(Kind::kObject) ||
         (null_allowed && value.is(Kind::kNull));
}

class QuestionReader {
 public:
  QuestionReader(Images* images, WireRequest* request) : images_(*images), request_(*request) {}

  void read(const std::string& id, const JsonValue& value) {
    loc_ = {"body", "questions", id};
    if (id.empty()) return wrong({}, "a question's id must not be empty", "string_too_short");
    if (!value.is(Kind::kObject)) {
      return wrong({}, fmt::format("must be an object, not {}", kind_name(value.kind)),
                   "model_attributes_type");
    }
    const JsonValue* type = value.find("type");
    if (type == nullptr) return wrong({"type"}, "is missing", "missing");
    if (!type->is(Kind::kString) || !set_type(type->text)) {
      const bool is_box = type->text == "box" && type->is(Kind::kString);
      return wrong({"type"},
                   is_box ? "the type \"box\" (a place in a picture) is not answered here; use "
                            "\"noul\", \"choice\" or \"score\""
                          : fmt::format("must be \"noul\", \"choice\" or \"score\", not {}",
                                        type->is(Kind::kString) ? quote_for_message(type->text)
                                                                : kind_name(type->kind)),
                   "union_tag_invalid");
    }
    loc_.push_back(type->text);  // as the hosted service does
    question_.id = images_.marked(id);
    echo_ = {};
    read_instructions(value.find("instructions"));
    const JsonValue* criteria = value.find("criteria");
    if (criteria != nullptr && criteria->is(Kind::kNull)) criteria = nullptr;
    switch (question_.type) {
      case QuestionType::kNoul:
        read_noul(criteria);
        break;
      case QuestionType::kChoice:
        read_choice(criteria);
        break;
      case QuestionType::kScore:
        read_score(criteria);
        break;
    }
    request_.questions.push_back(std::move(question_));
    request_.echoes.push_back(std::move(echo_));
  }

  std::vector<Issue> take_issues() { return std::move(issues_); }

 private:
  void wrong(std::vector<std::string> rest, std::string message, std::string type) {
    if (issues_.size() >= kMostIssues) return;
    std::vector<std::string> loc = loc_;
    loc.insert(loc.end(), rest.begin(), rest.end());
    issues_.push_back({std::move(loc), std::move(message), std::move(type)});
  }

  bool set_type(std::string_view name) {
    question_ = {};
    if (name == "choice") question_.type = QuestionType::kChoice;
    if (name == "score") question_.type = QuestionType::kScore;
    return name == "noul" || name == "choice" || name == "score";
  }

  void read_instructions(const JsonValue* value) {
    if (value == nullptr) return;
    if (!is_text(*value, true)) {
      return wrong(
          {"instructions"},
          fmt::format("must be a string, object, array or null, not {}", kind_name(value->kind)),
          "model_type");
    }
    question_.instructions = decision::text_of(images_.marked(*value));
  }

  Option option_of(std::string key, const JsonValue& value) {
    const JsonValue marked = images_.marked(value);
    return {.key = std::move(key),
            .description = decision::text_of(marked),
            .json = decision::to_json(marked)};
  }

  void read_noul(const JsonValue* criteria) {
    question_.options = {{.key = "true"}, {.key = "false"}};
    if (criteria != nullptr && !criteria->is(Kind::kObject)) {
      return wrong({"criteria"},
                   fmt::format("must be null or an object with the keys \"true\" and \"false\", "
                               "not {}",
                               kind_name(criteria->kind)),
                   "model_attributes_type");
    }
    for (size_t i = 0; criteria != nullptr && i < criteria->keys.size(); ++i) {
      const std::string& key = criteria->keys[i];
      const JsonValue& value = criteria->items[i];
      if (key != "true" && key != "false") {
        wrong({"criteria", key}, "a noul has the outcomes \"true\" and \"false\" only",
              "extra_forbidden");
      } else if (!is_text(value, true)) {
        wrong({"criteria", key},
              fmt::format("must be a string, object, array or null, not {}", kind_name(value.kind)),
              "model_type");
      } else {
        question_.options[key == "true" ? 0 : 1] = option_of(key, value);
      }
    }
    if (question_.instructions.empty() && question_.options[0].description.empty() &&
        question_.options[1].description.empty()) {
      wrong({"instructions"}, "a noul needs instructions or a described outcome; it has neither",
            "missing");
    }
  }

  void read_choice(const JsonValue* criteria) {
    if (criteria == nullptr || !criteria->is(Kind::kObject)) {
      return wrong({"criteria"},
                   fmt::format("must be an object of option to description, not {}",
                               criteria == nullptr ? "absent" : kind_name(criteria->kind)),
                   criteria == nullptr ? "missing" : "dict_type");
    }
    const size_t n = criteria->keys.size();
    if (n == 0) return wrong({"criteria"}, "needs at least 1 option, got 0", "too_short");
    if (n > kMaxWireOptions) {
      return wrong({"criteria"}, fmt::format("may have {} options, got {}", kMaxWireOptions, n),
                   "too_long");
    }
    for (size_t i = 0; i < n; ++i) {
      const std::string& key = criteria->keys[i];
      const JsonValue& value = criteria->items[i];
      if (!is_text(value, true)) {
        wrong({"criteria", key},
              fmt::format("must be a string, object, array or null, not {}", kind_name(value.kind)),
              "model_type");
        continue;
      }
      question_.options.push_back(option_of(images_.marked(key), value));
      echo_.options.push_back(decision::quote_json(key));
    }
  }

  void read_score(const JsonValue* criteria) {
    if (criteria == nullptr || !criteria->is(Kind::kArray)) {
      return wrong({"criteria"},
                   fmt::format("must be an array of levels, lowest first, not {}",
                               criteria == nullptr ? "absent" : kind_name(criteria->kind)),
                   criteria == nullptr ? "missing" : "list_type");
    }
    const size_t n = criteria->items.size();
    if (n == 0) return wrong({"criteria"}, "needs at least 1 level, got 0", "too_short");
    if (n > decision::kMaxLevels) {
      return wrong({"criteria"}, fmt::format("may have {} levels, got {}", decision::kMaxLevels, n),
                   "too_long");
    }
    for (size_t i = 0; i < n; ++i) {
      const JsonValue& level = criteria->items[i];
      if (!is_text(level, false)) {
        wrong({"criteria", fmt::format("{}", i)},
              fmt::format("must be a string, object or array, not {}", kind_name(level.kind)),
              "model_type");
        continue;
      }
      question_.options.push_back(option_of("", level));
      echo_.options.push_back(decision::to_json(level));
    }
  }

  static constexpr size_t kMostIssues = 64;

  Images& images_;
  WireRequest& request_;
  Question question_;
  QuestionEcho echo_;
  std::vector<std::string> loc_;
  std::vector<Issue> issues_;
};

class Reader {
 public:
  Reader(const JsonValue& body, const std::vector<Part>* parts, WireRequest* request)
      : body_(body), parts_(parts), request_(*request), images_(&request->images) {}

  ApiError read() {
    const bool well = check_members() && read_images() && read_assets() && check_size() &&
                      read_state() && read_questions() && check_mentions();
    if (!well && error_.status == 0) return make_error(422, "INVALID_REQUEST", "invalid request");
    return std::move(error_);
  }

 private:
  bool fail(std::vector<std::string> loc, std::string message, std::string type) {
    error_ = issue_error(std::move(loc), std::move(message), std::move(type));
    return false;
  }
  bool refuse(std::string code, std::string message) {
    error_ = make_error(400, std::move(code), std::move(message));
    return false;
  }

  bool check_members() {
    for (const std::string& key : body_.keys) {
      if (std::find(kMembers.begin(), kMembers.end(), key) != kMembers.end()) continue;
      return refuse("UNKNOWN_MEMBER",
                    fmt::format("the body has a member {}, which is not known here; the members "
                                "are model, state, questions, assets and images",
                                quote_for_message(key)));
    }
    const JsonValue* stream = body_.find("stream");
    if (stream != nullptr && stream->text != "false" && !stream->is(Kind::kNull)) {
      return fail({"body", "stream"}, "answers are not streamed", "literal_error");
    }
    const JsonValue* model = body_.find("model");
    if (model != nullptr && !model->is(Kind::kNull)) {
      if (!model->is(Kind::kString)) {
        return fail({"body", "model"},
                    fmt::format("must be a string, not {}", kind_name(model->kind)), "string_type");
      }
      request_.model = model->text;
    }
    return true;
  }

  bool read_images() {
    const JsonValue* list = body_.find("images");
    if (list == nullptr || list->is(Kind::kNull)) return true;
    if (!list->is(Kind::kArray)) {
      return fail({"body", "images"}, "must be an array of data URLs", "list_type");
    }
    for (size_t i = 0; i < list->items.size(); ++i) {
      const JsonValue& item = list->items[i];
      if (!item.is(Kind::kString)) {
        return fail({"body", "images", fmt::format("{}", i)}, "must be a data URL", "string_type");
      }
      const auto image = images_.add_source(fmt::format("images.{}", i), item.text,
                                            /*bare_allowed=*/true, &error_);
      if (!image) return false;  // without a mark: before the state
    }
    return true;
  }

  bool read_assets() {
    const JsonValue* assets = body_.find("assets");
    std::set<std::string> claimed;
    if (assets != nullptr && !assets->is(Kind::kNull)) {
      if (!assets->is(Kind::kObject)) {
        return fail({"body", "assets"}, "must be an object of name to asset", "dict_type");
      }
      if (assets->keys.empty()) {
        return fail({"body", "assets"}, "must not be empty when it is there", "too_short");
      }
      for (size_t i = 0; i < assets->keys.size(); ++i) {
        if (!read_asset(assets->keys[i], assets->items[i], &claimed)) return false;
      }
    }
    for (const Part& part : parts_ != nullptr ? *parts_ : std::vector<Part>()) {
      if (claimed.count(part.name) > 0) continue;
      return refuse("UNCLAIMED_PART",
                    fmt::format("no asset names the part {}", quote_for_message(part.name)));
    }
    return true;
  }

  bool read_asset(const std::string& name, const JsonValue& asset, std::set<std::string>* claimed) {
    const std::vector<std::string> loc = {"body", "assets", name};
    if (name.find_first_not_of(" \t\r\n") == std::string::npos) {
      return fail(loc, "an asset's name must not be blank", "string_too_short");
    }
    if (name.size() > kMaxImageNameBytes) {
      return fail(loc, fmt::format("an asset's name may have {} bytes", kMaxImageNameBytes),
                  "string_too_long");
    }
    const JsonValue* type = asset.find("type");
    if (type == nullptr || type->text != "image") {
      return fail({"body", "assets", name, "type"}, "must be \"image\"", "literal_error");
    }
    const std::string where = "asset " + quote_for_message(name);
    std::optional<size_t> image;
    if (const JsonValue* part = asset.find("part"); part != nullptr && !part->is(Kind::kNull)) {
      const Part* found = find_part(*part);
      if (found == nullptr || !claimed->insert(found->name).second) {
        return fail({"body", "assets", name, "part"},
                    found == nullptr ? "names no part of a multipart body"
                                     : "the part belongs to another asset already",
                    "value_error");
      }
      image = images_.add_bytes(where, std::string(found->body), &error_);
    } else if (const JsonValue* data = asset.find("data_base64");
               data != nullptr && data->is(Kind::kString)) {
      Result<std::string> bytes = decode_base64(data->text);
      if (!bytes.ok()) {
        return fail({"body", "assets", name, "data_base64"}, bytes.status().message(),
                    "value_error");
      }
      image = images_.add_bytes(where, std::move(bytes).value(), &error_);
    } else if (const JsonValue* digest = asset.find("sha256");
               digest != nullptr && digest->is(Kind::kString)) {
      image = images_.add_digest(where, digest->text, &error_);
    } else {
      return fail(loc, "needs data_base64, part or sha256, a string", "missing");
    }
    if (image) images_.name(name, *image);
    return image.has_value();
  }

  const Part* find_part(const JsonValue& name) const {
    if (parts_ == nullptr || !name.is(Kind::kString)) return nullptr;
    for (const Part& part : *parts_) {
      if (part.name == name.text) return &part;
    }
    return nullptr;
  }

  // Names are looked for everywhere in the texts, so these are bounded first.
  bool check_size() {
    size_t n_bytes = 0;
    for (const char* member : {"state", "questions"}) {
      if (const JsonValue* value = body_.find(member)) n_bytes += decision::to_json(*value).size();
    }
    if (request_.images.empty() || n_bytes <= kMaxTextBytes) return true;
    error_ = make_error(413, "BODY_TOO_LARGE",
                        fmt::format("state and questions beside pictures may have {} bytes, got {}",
                                    kMaxTextBytes, n_bytes));
    return false;
  }

  bool read_state() {
    const JsonValue* state = body_.find("state");
    if (state == nullptr) return fail({"body", "state"}, "is missing", "missing");
    if (!is_text(*state, false)) {
      return fail({"body", "state"},
                  fmt::format("must be a string, object or array, not {}", kind_name(state->kind)),
                  "model_type");
    }
    std::string text;
    if (is_picture_state(*state)) {
      if (!read_picture_state(*state, &text)) return false;
    } else if (state->is(Kind::kArray) && holds_image_parts(*state)) {
      if (!read_chat_state(*state, &text)) return false;
    } else {
      text = decision::text_of(images_.marked(*state));
    }
    request_.state = std::move(text);
    return true;
  }

  // {"image": data URL[, "text": ...]}.
  static bool is_picture_state(const JsonValue& state) {
    const JsonValue* image = state.find("image");
    if (image == nullptr || !image->is(Kind::kString)) return false;
    const bool is_remote =
        image->text.starts_with("http://") || image->text.starts_with("https://");
    const bool has_others =
        state.keys.size() > (state.find("text") != nullptr ? size_t{2} : size_t{1});
    return looks_like_image_source(image->text) || (is_remote && !has_others);
  }

  bool read_picture_state(const JsonValue& state, std::string* text) {
    const auto image = images_.add_source("state.image", state.find("image")->text,
                                          /*bare_allowed=*/false, &error_);
    if (!image) return false;
    *text = picture_mark(*image);
    JsonValue rest{.kind = Kind::kObject};
    for (size_t i = 0; i < state.keys.size(); ++i) {
      if (state.keys[i] == "image") continue;
      rest.keys.push_back(state.keys[i]);
      rest.items.push_back(state.items[i]);
    }
    const bool is_text_only = rest.keys.size() == 1 && rest.keys[0] == "text";
    const std::string words =
        decision::text_of(images_.marked(is_text_only ? rest.items[0] : rest));
    if (!words.empty()) *text += "\n" + words;
    return true;
  }

  static bool is_image_part(const JsonValue& item) {
    const JsonValue* type = item.find("type");
    return type != nullptr && (type->text == "image_url" || type->text == "input_image");
  }
  static bool is_message(const JsonValue& item) {
    return item.find("role") != nullptr && item.find("content") != nullptr;
  }
  static bool holds_image_parts(const JsonValue& state) {
    return std::any_of(state.items.begin(), state.items.end(), [](const JsonValue& item) {
      if (is_image_part(item)) return true;
      if (!is_message(item)) return false;
      const JsonValue& content = *item.find("content");
      return std::any_of(content.items.begin(), content.items.end(), is_image_part);
    });
  }

  // Strings, parts and messages in their order, one below the other.
  bool read_chat_state(const JsonValue& state, std::string* text) {
    const PartsReader parts{images_, &error_};
    for (size_t i = 0; i < state.items.size(); ++i) {
      const JsonValue& item = state.items[i];
      const std::vector<std::string> loc = {"body", "state", fmt::format("{}", i)};
      if (i > 0) *text += '\n';
      const JsonValue* type = item.find("type");
      if (is_message(item)) {
        const std::string& role = item.find("role")->text;
        const std::string_view title = role_title(role);
        if (i > 0 || role != "user") *text += fmt::format("{}: ", title.empty() ? role : title);
        if (!parts.read(*item.find("content"), loc, role, text)) return false;
      } else if (is_image_part(item) ||
                 (type != nullptr && (type->text == "text" || type->text == "input_text"))) {
        const JsonValue one{.kind = Kind::kArray, .items = {item}};
        if (!parts.read(one, loc, "user", text)) return false;
      } else {
        *text += decision::text_of(images_.marked(item));
      }
    }
    return true;
  }

  bool read_questions() {
    const JsonValue* questions = body_.find("questions");
    if (questions == nullptr) return fail({"body", "questions"}, "is missing", "missing");
    if (!questions->is(Kind::kObject)) {
      return fail(
          {"body", "questions"},
          fmt::format("must be an object of id to question, not {}", kind_name(questions->kind)),
          "dict_type");
    }
    if (questions->keys.empty()) {
      return fail({"body", "questions"}, "needs at least 1 question, got 0", "too_short");
    }
    if (questions->keys.size() > kMaxQuestions) {
      return fail({"body", "questions"}, fmt::format("may have {} questions", kMaxQuestions),
                  "too_long");
    }
    QuestionReader reader(&images_, &request_);
    for (size_t i = 0; i < questions->keys.size(); ++i) {
      reader.read(questions->keys[i], questions->items[i]);
    }
    std::vector<Issue> issues = reader.take_issues();
    if (issues.empty()) {
      for (size_t i = 0; i < request_.echoes.size(); ++i) {
        request_.echoes[i].id = questions->keys[i];
      }
      return true;
    }
    error_ = issues_error(std::move(issues));
    return false;
  }

  bool check_mentions() {
    const std::optional<std::string> name = images_.unmentioned();
    if (!name) return true;
    return refuse("ASSET_NOT_REFERENCED",
                  fmt::format("the asset {} is mentioned nowhere in state or questions",
                              quote_for_message(*name)));
  }

  const JsonValue& body_;
  const std::vector<Part>* parts_;
  WireRequest& request_;
  Images images_;
  ApiError error_;
};

}  // namespace

ApiError read_systemone(const JsonValue& body, const std::vector<Part>* parts,
                        WireRequest* request) {
  return Reader(body, parts, request).read();
}

}  // namespace okibi::server
