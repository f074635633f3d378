// The requests that official clients send, against what they mean.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "decide/picture_marks.h"
#include "server/wire/read_request.h"
#include "server/wire_cases.h"
#include "server/write_response.h"

namespace okibi::server {
namespace {

using Json = nlohmann::ordered_json;
using okibi::testing::WireCase;

const std::vector<WireCase>& cases() {
  static const std::vector<WireCase> all = okibi::testing::all_wire_cases();
  return all;
}

ApiError read_case(const WireCase& c, WireRequest* request) {
  const auto header = [&](const char* name) {
    const auto found = c.headers.find(name);
    return found == c.headers.end() ? std::string_view() : std::string_view(found->second);
  };
  return read_request({.path = c.path == "/v1/decisions" ? Api::kDecisions : Api::kSystemOne,
                       .content_type = header("content-type"),
                       .content_encoding = header("content-encoding"),
                       .bytes = c.body},
                      request);
}

bool is_refused_here(const WireCase& c) {
  return c.name == "ts_image_is_state_box" || c.name == "dc_multi_locate" ||
         c.name == "ts_image_alias_and_reference";
}

// The text that marks stand for, with every image's digest in its place.
std::string with_digests(const WireRequest& request, std::string_view text) {
  std::string out;
  for (const decision::TextPiece& piece : decision::split_at_marks(text)) {
    out += !piece.picture ? std::string(piece.text)
                          : "[" + request.images.at(*piece.picture).sha256 + "]";
  }
  return out;
}

void collect_texts(const WireRequest& request, std::string* out) {
  *out += with_digests(request, request.state) + "\n";
  for (const Question& question : request.questions) {
    *out += with_digests(request, question.id + "\n" + question.instructions) + "\n";
    for (const Option& option : question.options) {
      *out += with_digests(request, option.key + "\n" + option.description) + "\n";
    }
  }
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Answers uniform_answers(const WireRequest& request) {
  Answers answers;
  for (const Question& question : request.questions) {
    const double n = static_cast<double>(question.options.size());
    answers.result.answers.push_back(
        {.type = question.type,
         .probabilities = std::vector<double>(question.options.size(), 1 / n),
         .score = question.type == QuestionType::kNoul ? 0.5 : (n - 1) / 2,
         .confidence = n == 1 ? 1.0 : 0.0});
  }
  return answers;
}

TEST(WireOracle, ThereAreFortyRequests) {
  EXPECT_EQ(cases().size(), 40u);
}

TEST(WireOracle, EveryRequestIsUnderstood) {
  for (const WireCase& c : cases()) {
    if (c.method != "POST" || is_refused_here(c)) continue;
    WireRequest request;
    const ApiError error = read_case(c, &request);
    EXPECT_EQ(error.status, 0) << c.name << ": " << error.message;
    EXPECT_EQ(request.api == Api::kDecisions, c.path == "/v1/decisions") << c.name;
    EXPECT_EQ(request.model, c.meant["json"].value("model", "")) << c.name;
    EXPECT_EQ(request.questions.size(), c.meant["json"]["questions"].size()) << c.name;
  }
}

TEST(WireOracle, ImagesAreThoseSentInTheirOrder) {
  size_t n_images = 0;
  for (const WireCase& c : cases()) {
    if (c.method != "POST" || is_refused_here(c)) continue;
    WireRequest request;
    ASSERT_EQ(read_case(c, &request).status, 0) << c.name;
    ASSERT_EQ(request.images.size(), c.meant["images"].size()) << c.name;
    for (size_t i = 0; i < request.images.size(); ++i) {
      const Json& meant = c.meant["images"][i];
      EXPECT_EQ(request.images[i].sha256, meant["sha256"].get<std::string>()) << c.name;
      EXPECT_EQ(request.images[i].bytes.size(), meant["bytes"].get<size_t>()) << c.name;
      ++n_images;
    }
  }
  EXPECT_GT(n_images, 20u);
}

TEST(WireOracle, EveryMentionOfAnImageBecomesItsPlace) {
  for (const WireCase& c : cases()) {
    if (c.method != "POST" || is_refused_here(c)) continue;
    WireRequest request;
    ASSERT_EQ(read_case(c, &request).status, 0) << c.name;
    std::string texts;
    collect_texts(request, &texts);
    std::map<std::string, size_t> mentions;
    for (const Json& image : c.meant["images"]) {
      const bool by_name = image.contains("referenced");
      const size_t n_marks = c.meant["json"].contains("images") ? 0 : 1;  // 0: before the state
      mentions[image["sha256"]] += by_name ? image["referenced"].size() : n_marks;
      if (!by_name) continue;
      // Other names may begin with this one or end so; where it is no other's part, it is gone.
      if (c.name == "ts_alias_prefix") continue;
      EXPECT_EQ(count(texts, image["asset"]), 0u) << c.name;
    }
    for (const auto& [digest, n] : mentions) {
      EXPECT_EQ(count(texts, "[" + digest + "]"), n) << c.name << "\n" << texts;
    }
  }
}

TEST(WireOracle, MentionsInTheStateStandAtTheirOffsets) {
  size_t n_checked = 0;
  for (const WireCase& c : cases()) {
    if (c.method != "POST" || is_refused_here(c) || !c.meant["json"].contains("state")) continue;
    if (!c.meant["json"]["state"].is_string()) continue;
    WireRequest request;
    ASSERT_EQ(read_case(c, &request).status, 0) << c.name;
    std::string expected = c.meant["json"]["state"];
    std::vector<std::tuple<size_t, size_t, std::string>> places;
    for (const Json& image : c.meant["images"]) {
      if (!image.contains("referenced")) continue;
      for (const Json& place : image["referenced"]) {
        if (place["at"] != "/state") continue;
        places.emplace_back(place["offset"], image["asset"].get<std::string>().size(),
                            image["sha256"]);
      }
    }
    std::sort(places.rbegin(), places.rend());
    for (const auto& [offset, size, digest] : places) {
      expected.replace(offset, size, "[" + digest + "]");
      ++n_checked;
    }
    EXPECT_EQ(with_digests(request, request.state), expected) << c.name;
  }
  EXPECT_GT(n_checked, 2u);
}

TEST(WireOracle, AnswersHaveTheFormThatClientsAccepted) {
  for (const WireCase& c : cases()) {
    if (c.method != "POST" || is_refused_here(c)) continue;
    WireRequest request;
    ASSERT_EQ(read_case(c, &request).status, 0) << c.name;
    const ModelCard card{.name = "mock-1"};
    const std::string body = response_body(request, uniform_answers(request), card, false);
    Json answer = Json::parse(body);
    if (c.meant["response"]["usage"].empty()) answer["usage"] = Json::object();
    EXPECT_EQ(answer.dump(), c.meant["response"].dump()) << c.name;
  }
}

TEST(WireOracle, ModelsAreListedForBothClients) {
  const Json models = Json::parse(models_body({.name = "m", .description = "d", .created = 7}));
  EXPECT_EQ(models["models"][0]["name"], "m");
  EXPECT_TRUE(models["models"][0]["release_date"].is_string());
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["created"], 7);
}

TEST(WireOracle, BoxesAreRefusedInWords) {
  for (const WireCase& c : cases()) {
    if (c.name != "ts_image_is_state_box") continue;
    WireRequest request;
    const ApiError error = read_case(c, &request);
    EXPECT_EQ(error.status, 422);
    EXPECT_NE(error.message.find("\"box\""), std::string::npos) << error.message;
    EXPECT_EQ(error.issues.at(0).loc.back(), "type");
  }
}

TEST(WireOracle, UnknownTypesAreAllNamed) {
  for (const WireCase& c : cases()) {
    if (c.name != "dc_multi_locate") continue;
    WireRequest request;
    const ApiError error = read_case(c, &request);
    EXPECT_EQ(error.status, 422);
    ASSERT_EQ(error.issues.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const Json& meant = c.meant["response"]["detail"][i];
      EXPECT_EQ(Json(error.issues[i].loc), meant["loc"]);
      EXPECT_EQ(error.issues[i].type, meant["type"]);
    }
    const Json body = Json::parse(error_body(error, request.api));
    EXPECT_TRUE(body["error"].is_string());
    EXPECT_EQ(body["detail"].size(), 2u);
  }
}

TEST(WireOracle, AnAssetThatNothingMentionsIsNamed) {
  for (const WireCase& c : cases()) {
    if (c.name != "ts_image_alias_and_reference") continue;
    WireRequest request;
    const ApiError error = read_case(c, &request);
    EXPECT_EQ(error.status, 400);
    std::string unmentioned;
    for (const Json& image : c.meant["images"]) {
      if (image["referenced"].empty()) unmentioned = image["asset"];
    }
    ASSERT_FALSE(unmentioned.empty());
    EXPECT_NE(error.message.find(unmentioned), std::string::npos) << error.message;
  }
}

TEST(WireOracle, BreakpointsEndPrefixesExactly) {
  for (const WireCase& c : cases()) {
    if (c.name != "oai_cache_explicit") continue;
    WireRequest request;
    ASSERT_EQ(read_case(c, &request).status, 0);
    EXPECT_EQ(request.cache_key, "tenant-7");
    EXPECT_TRUE(request.explicit_prefixes);
    ASSERT_EQ(request.prefix_ends.size(), 2u);
    const std::string rules = c.meant["json"]["input"][0]["content"][0]["text"];
    EXPECT_EQ(request.state.substr(0, request.prefix_ends[0]), "Developer: " + rules);
    EXPECT_EQ(with_digests(request, request.state.substr(0, request.prefix_ends[1])),
              "Developer: " + rules + "\n\nUser: [" + request.images[0].sha256 + "]");
  }
}

}  // namespace
}  // namespace okibi::server
