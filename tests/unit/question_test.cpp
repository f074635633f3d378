// Reading of questions and of the JSON they stand in; what malformed and hostile texts are told.
#include "decide/question.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace okibi::decision {
namespace {

// The message of the refusal; "accepted" when there was none.
std::string refusal(std::string_view json) {
  const auto questions = parse_questions(json);
  return questions.ok() ? "accepted" : questions.status().message();
}

#define EXPECT_REFUSED(json, part) \
  EXPECT_NE(refusal(json).find(part), std::string::npos) << refusal(json)

TEST(Questions, KeepTheirOrderAndEveryFieldOfTheThreeTypes) {
  const auto result = parse_questions(R"({
    "z": {"type": "choice", "instructions": "What?", "criteria":
          {"overheat": "too hot", "10": null, "2": {"max": [1, 2.50]}, "Yes": "", "yes": []}},
    "a": {"type": "score", "criteria": ["low", {"level": "mid"}, ["h", "i"]], "extra": 1},
    "m": {"type": "noul", "instructions": {"task": "check"}, "criteria": {"false": "fine"}}})");
  ASSERT_TRUE(result.ok()) << result.status().message();
  const std::vector<Question>& q = result.value();
  ASSERT_EQ(q.size(), 3u);

  EXPECT_EQ(q[0].id, "z");
  EXPECT_EQ(q[0].type, QuestionType::kChoice);
  EXPECT_EQ(q[0].instructions, "What?");
  ASSERT_EQ(q[0].options.size(), 5u);
  EXPECT_EQ(q[0].options[0].key, "overheat");
  EXPECT_EQ(q[0].options[0].description, "too hot");
  EXPECT_EQ(q[0].options[0].json, "\"too hot\"");
  EXPECT_EQ(q[0].options[1].key, "10");
  EXPECT_EQ(q[0].options[1].description, "");
  EXPECT_EQ(q[0].options[2].key, "2");
  EXPECT_EQ(q[0].options[2].description, R"({"max": [1, 2.50]})");
  EXPECT_EQ(q[0].options[3].key, "Yes");
  EXPECT_EQ(q[0].options[4].key, "yes");
  EXPECT_EQ(q[0].options[4].description, "");

  EXPECT_EQ(q[1].id, "a");
  EXPECT_EQ(q[1].instructions, "");
  ASSERT_EQ(q[1].options.size(), 3u);
  EXPECT_EQ(q[1].options[1].json, R"({"level": "mid"})");
  EXPECT_EQ(q[1].options[2].description, R"(["h", "i"])");

  EXPECT_EQ(q[2].instructions, R"({"task": "check"})");
  ASSERT_EQ(q[2].options.size(), 2u);
  EXPECT_EQ(q[2].options[0].key, "true");
  EXPECT_EQ(q[2].options[0].description, "");
  EXPECT_EQ(q[2].options[1].key, "false");
  EXPECT_EQ(q[2].options[1].description, "fine");
}

TEST(Questions, NoulListsTrueFirstHoweverItIsWritten) {
  const auto result =
      parse_questions(R"({"q": {"type": "noul", "criteria": {"false": "n", "true": "y"}}})");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value()[0].options[0].description, "y");
  EXPECT_EQ(result.value()[0].options[1].description, "n");
}

TEST(Questions, IdsThatAreEmptyOrComeTwiceAreRefusedByName) {
  EXPECT_REFUSED(R"({"": {"type": "noul", "instructions": "x"}})", "empty id");
  EXPECT_REFUSED(R"({"door": {"type": "noul", "instructions": "x"},
                     "window": {"type": "noul", "instructions": "x"},
                     "door": {"type": "noul", "instructions": "y"}})",
                 "\"door\" stands twice");
  EXPECT_REFUSED(R"({"q": {"type": "choice", "criteria": {"a": null, "b": null, "a": "x"}}})",
                 "\"a\" stands twice in the object at \"q\" > \"criteria\"");
  // An escape does not make it another key.
  EXPECT_REFUSED(R"({"q": {"type": "noul", "instructions": "x"}, "\u0071": {}})",
                 "\"q\" stands twice");
}

TEST(Questions, WrongShapesAreRefusedWithWhatWasFound) {
  EXPECT_REFUSED("[]", "object of id to question, not an array");
  EXPECT_REFUSED("{}", "at least 1 question, got 0");
  EXPECT_REFUSED(R"({"q": []})", "question \"q\": must be an object, not an array");
  EXPECT_REFUSED(R"({"q": {}})", "has no type");
  EXPECT_REFUSED(R"({"q": {"type": 3}})", "type must be a string, not a number");
  EXPECT_REFUSED(R"({"q": {"type": "Noul"}})", "not \"Noul\"");
  EXPECT_REFUSED(R"({"q": {"type": "box", "instructions": "the door"}})", "\"box\"");
  EXPECT_REFUSED(R"({"q": {"type": "noul", "instructions": 5}})",
                 "instructions must be a string, object, array or null, not a number");
}

TEST(Questions, NoulNeedsAMeaningSomewhere) {
  for (const char* json :
       {R"({"q": {"type": "noul"}})", R"({"q": {"type": "noul", "instructions": ""}})",
        R"({"q": {"type": "noul", "instructions": null, "criteria": null}})",
        R"({"q": {"type": "noul", "criteria": {}}})",
        R"({"q": {"type": "noul", "criteria": {"true": null, "false": []}}})"}) {
    EXPECT_REFUSED(json, "needs instructions or criteria");
  }
  EXPECT_EQ(refusal(R"({"q": {"type": "noul", "criteria": {"true": "y"}}})"), "accepted");
  EXPECT_EQ(refusal(R"({"q": {"type": "noul", "instructions": ["y"]}})"), "accepted");
  EXPECT_REFUSED(R"({"q": {"type": "noul", "criteria": ["y", "n"]}})", "not an array");
  EXPECT_REFUSED(R"({"q": {"type": "noul", "criteria": {"yes": "y"}}})", "\"yes\"");
  EXPECT_REFUSED(R"({"q": {"type": "noul", "criteria": {"true": true}}})", "not a boolean");
}

TEST(Questions, ChoiceTakesOneTo255OptionsAsAnObject) {
  const auto choice = [](int n) {
    nlohmann::ordered_json criteria = nlohmann::ordered_json::object();
    for (int i = 0; i < n; ++i) criteria[std::to_string(i)] = nullptr;
    return nlohmann::ordered_json{{"q", {{"type", "choice"}, {"criteria", criteria}}}}.dump();
  };
  EXPECT_REFUSED(choice(0), "at least 1 option");
  EXPECT_EQ(refusal(choice(1)), "accepted");
  EXPECT_EQ(refusal(choice(255)), "accepted");
  EXPECT_REFUSED(choice(256), "up to 255 options here, got 256");
  EXPECT_REFUSED(R"({"q": {"type": "choice"}})", "needs criteria");
  EXPECT_REFUSED(R"({"q": {"type": "choice", "criteria": null}})", "not null");
  EXPECT_REFUSED(R"({"q": {"type": "choice", "criteria": ["a", "b"]}})", "not an array");
  EXPECT_REFUSED(R"({"q": {"type": "choice", "criteria": {"a": 1}}})", "\"a\"");
}

TEST(Questions, ScoreTakesOneTo10LevelsAsAnArray) {
  const auto score = [](int n) {
    return nlohmann::json{
        {"q", {{"type", "score"}, {"criteria", std::vector<std::string>(n, "x")}}}}
        .dump();
  };
  EXPECT_REFUSED(score(0), "this one has 0");
  EXPECT_EQ(refusal(score(1)), "accepted");
  EXPECT_EQ(refusal(score(10)), "accepted");
  EXPECT_REFUSED(score(11), "this one has 11");
  EXPECT_REFUSED(R"({"q": {"type": "score"}})", "absent");
  EXPECT_REFUSED(R"({"q": {"type": "score", "criteria": {"0": "low"}}})", "not an object");
  EXPECT_REFUSED(R"({"q": {"type": "score", "criteria": ["low", null]}})", "level 1");
}

TEST(Questions, LongIdsAreCutInMessagesBetweenCharacters) {
  std::string id;
  for (int i = 0; i < 100; ++i) id += "\xe7\x82\xad";  // 3 bytes each
  const std::string message = refusal("{\"" + id + "a\": 1}");
  EXPECT_LT(message.size(), 200u);
  EXPECT_NO_THROW(nlohmann::json(message).dump()) << "not UTF-8";
  const std::string shifted = refusal("{\"a" + id + "\": 1}");
  EXPECT_NO_THROW(nlohmann::json(shifted).dump()) << "not UTF-8";
}

TEST(QuestionJson, MalformedTextIsRefusedWithItsPlace) {
  for (const char* json :
       {"", " ", "{", "{\"q\"", "{\"q\":", "{\"q\": {}", "{\"q\": {}}}", "nul", "{'q': 1}",
        "{\"q\": NaN}", "{\"q\": 01}", "{\"q\": \"\\x\"}", "{\"q\": \"\\ud800\"}", "{\"q\": 1e999}",
        "{\"q\": \"\xff\"}", "{\"q\": \"\xc0\x80\"}", "{\"q\": \"a\nb\"}", "{,}", "{\"q\": 1,}"}) {
    EXPECT_REFUSED(json, "not valid JSON at byte");
  }
}

TEST(QuestionJson, EveryPrefixOfAValidTextIsRefused) {
  const std::string whole =
      R"({"q": {"type": "choice", "criteria": {"a\u00e9": [1.5e3, true], "b": null}}})";
  ASSERT_EQ(refusal(whole), "accepted");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "accepted");
}

TEST(QuestionJson, DepthIsCappedAt64) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(64)).ok());
  EXPECT_FALSE(parse_json(nested(65)).ok());
  EXPECT_REFUSED(std::string(5'000'000, '['), "more than 64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_REFUSED(objects, "more than 64 levels");
}

TEST(QuestionJson, NumberOfValuesIsCapped) {
  std::string many = "[0";
  for (int i = 0; i < 1'100'000; ++i) many += ",0";
  EXPECT_REFUSED(many + "]", "more than 1000000 values");
}

TEST(QuestionJson, NumbersAndCharactersComeBackAsWritten) {
  const std::string text =
      R"({"a": [1, -2, 1.50, 1e3, 0.1000, 12345678901234567890], "b": {"c": [], "d": {}},)"
      " \"\xe6\xbc\xa2\": \"\\\"\\\\\\n\\u0001\xc3\xa9/\", \"t\": true, \"f\": false, \"n\": null}";
  const auto value = parse_json(text);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(to_json(value.value()), text);
}

TEST(QuestionFile, MayBeTheQuestionsOrAWholeBody) {
  const std::string questions = R"({"q": {"type": "noul", "instructions": "x"}})";
  auto file = parse_question_file(questions);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->questions.size(), 1u);
  EXPECT_FALSE(file->state.has_value());

  file =
      parse_question_file(R"({"model": "m", "state": {"a": 1}, "questions": )" + questions + "}");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->questions.size(), 1u);
  EXPECT_EQ(file->state, R"({"a": 1})");

  // A question may bear the name of the member, and a body's question may be called "type".
  file = parse_question_file(R"({"questions": {"type": "noul", "instructions": "x"}})");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->questions[0].id, "questions");
  file = parse_question_file(R"({"questions": {"type": {"type": "noul", "instructions": "x"}}})");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->questions[0].id, "type");

  EXPECT_FALSE(parse_question_file(R"({"state": 5, "questions": )" + questions + "}").ok());
}

TEST(QuestionFile, ReadsWhatOfficialClientsSend) {
  size_t n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OKIBI_GOLDEN_DIR "/wire")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("ts_") || !name.ends_with(".json")) continue;
    std::ifstream in(entry.path());
    const auto recorded = nlohmann::ordered_json::parse(in);
    if (!recorded["json"].is_object() || !recorded["json"].contains("questions")) continue;
    ++n_files;
    const auto file = parse_question_file(recorded["json"].dump());
    const auto& sent = recorded["json"]["questions"];
    const bool has_box =
        std::any_of(sent.begin(), sent.end(), [](const auto& q) { return q["type"] == "box"; });
    EXPECT_EQ(file.ok(), !has_box) << name << ": " << file.status().message();
    if (!file.ok()) {
      EXPECT_EQ(file.status().code(), StatusCode::kUnsupported) << name;
      continue;
    }
    ASSERT_EQ(file->questions.size(), sent.size()) << name;
    size_t i = 0;
    for (const auto& [id, question] : sent.items()) {
      EXPECT_EQ(file->questions[i].id, id) << name;
      if (question["type"] != "noul") {
        EXPECT_EQ(file->questions[i].options.size(), question["criteria"].size()) << name;
      }
      ++i;
    }
  }
  EXPECT_GE(n_files, 10u);
}

}  // namespace
}  // namespace okibi::decision
