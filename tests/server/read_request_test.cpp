// Bodies that no official client sends: other forms of pictures, and everything that is refused.
#include "server/wire/read_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace okibi::server {
namespace {

constexpr char kPicture[] = "data:image/png;base64,iVBORw0KGgo=";
const std::string kNoul = R"("questions": {"q": {"type": "noul", "instructions": "Is it?"}})";

// Bodies below are written short: $Q is a noul, $C and $S begin a choice and a score, $U a message.
std::string expanded(std::string text, Api api = Api::kSystemOne) {
  const bool is_decisions = api == Api::kDecisions;
  const std::pair<std::string, std::string> all[] = {
      {"$Q", R"("questions": {"q": {"type": "noul", "instructions": "?"}})"},
      {"$C", is_decisions ? R"("questions": [{"type": "choice", "instructions": "?", "choices")"
                          : R"("questions": {"q": {"type": "choice", "criteria")"},
      {"$S", R"("questions": {"q": {"type": "score", "criteria")"},
      {"$U", R"({"role": "user", "content")"}};
  for (const auto& [name, value] : all) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

struct Outcome {
  WireRequest request;
  ApiError error;
};

Outcome read(const std::string& json, Api path = Api::kSystemOne,
             const std::string& type = "application/json") {
  Outcome out;
  const std::string whole = expanded(json, path);
  out.error = read_request({.path = path, .content_type = type, .bytes = whole}, &out.request);
  return out;
}

Outcome read_state(const std::string& state) {
  return read("{\"state\": " + state + ", " + kNoul + "}");
}

TEST(SystemOneBody, ImagesStandBeforeTheState) {
  const Outcome out =
      read(fmt::format(R"({{"state": "a", "images": ["{}", "AAAA"], {}}})", kPicture, kNoul));
  ASSERT_EQ(out.error.status, 0) << out.error.message;
  EXPECT_EQ(out.request.state, "a");  // pictures without a mark stand before it
  ASSERT_EQ(out.request.images.size(), 2u);
  EXPECT_EQ(out.request.images[0].bytes, "\x89PNG\r\n\x1a\n");
}

TEST(SystemOneBody, ChatPartsKeepTheirOrder) {
  const Outcome out = read_state(fmt::format(
      R"(["before", {{"type": "image_url", "image_url": {{"url": "{0}"}}}},
          {{"type": "text", "text": "between"}},
          {{"role": "user", "content": [{{"type": "input_image", "image_url": "{0}"}}]}},
          {{"k": 1}}])",
      kPicture));
  ASSERT_EQ(out.error.status, 0) << out.error.message;
  EXPECT_EQ(out.request.state,
            "before\n" + picture_mark(0) + "\nbetween\nUser: " + picture_mark(1) + "\n{\"k\": 1}");
}

TEST(SystemOneBody, ListsWithoutPicturesAreJson) {
  const Outcome out = read_state(R"([$U: "hi"}, "x"])");
  EXPECT_EQ(out.request.state, R"([{"role": "user", "content": "hi"}, "x"])");
}

TEST(SystemOneBody, AnImageMemberIsAPicture) {
  const Outcome out = read_state(fmt::format(R"({{"text": "Dock", "image": "{}"}})", kPicture));
  EXPECT_EQ(out.request.state, picture_mark(0) + "\nDock");
  EXPECT_EQ(read_state(R"({"image": "of a cat"})").request.state, R"({"image": "of a cat"})");
}

TEST(SystemOneBody, DigestsReferToEarlierPictures) {
  const std::string digest(64, 'a');
  for (const std::string& body :
       {fmt::format(R"({{"state": "x", "images": ["sha256:{}"], {}}})", digest, kNoul),
        fmt::format(R"({{"state": "pic", "assets": {{"pic": {{"type": "image", "sha256": "{}"}}}},
                     {}}})",
                    digest, kNoul),
        fmt::format(R"({{"state": {{"image": "sha256:{}"}}, {}}})", digest, kNoul)}) {
    const Outcome out = read(body);
    ASSERT_EQ(out.error.status, 0) << body << out.error.message;
    EXPECT_TRUE(out.request.images.at(0).is_reference);
    EXPECT_EQ(out.request.images[0].sha256, digest);
  }
  EXPECT_EQ(read_state(R"({"image": "sha256:12"})").error.status, 400);
}

TEST(SystemOneBody, TheLongestNameWins) {
  const Outcome out = read(
      R"({"state": "a ab abc", "assets": {
        "a": {"type": "image", "data_base64": "AAAA"},
        "ab": {"type": "image", "data_base64": "AAAB"},
        "abc": {"type": "image", "data_base64": "AAAC"}}, )" +
      kNoul + "}");
  ASSERT_EQ(out.error.status, 0) << out.error.message;
  EXPECT_EQ(out.request.state, picture_mark(0) + " " + picture_mark(1) + " " + picture_mark(2));
}

TEST(SystemOneBody, KeysAndLevelsAreEchoedAsTheyWere) {
  const Outcome out = read(R"({"state": "x", "assets": {"pic": {"type": "image",
      "data_base64": "AAAA"}}, "questions": {
      "c": {"type": "choice", "criteria": {"pic": null, "other": "a pic"}},
      "s": {"type": "score", "criteria": [{"see": "pic"}, "b"]}}})");
  ASSERT_EQ(out.error.status, 0) << out.error.message;
  EXPECT_EQ(out.request.echoes[0].options[0], "\"pic\"");
  EXPECT_EQ(out.request.questions[0].options[0].key, picture_mark(0));
  EXPECT_EQ(out.request.questions[0].options[1].description, "a " + picture_mark(0));
  EXPECT_EQ(out.request.echoes[1].options[0], "{\"see\": \"pic\"}");
  EXPECT_EQ(out.request.questions[1].options[0].description,
            "{\"see\": \"" + picture_mark(0) + "\"}");
}

TEST(SystemOneBody, NoTextCanForgeAMark) {
  // The byte of marks is not UTF-8, so JSON with it is refused.
  EXPECT_EQ(read_state("\"" + picture_mark(0) + "\"").error.status, 400);
}

struct Refused {
  const char* body;
  int status;
  const char* in_message;
};

TEST(SystemOneBody, RefusesInWords) {
  const Refused all[] = {
      {R"({"state": "x")", 400, "not valid JSON"},
      {R"({"state": NaN, "questions": {}})", 400, "not valid JSON"},
      {R"([1])", 422, "JSON object"},
      {R"({"state": "x", "state": "y", "questions": {}})", 400, "twice"},
      {R"({$Q})", 422, "state"},
      {R"({"state": 4, $Q})", 422, "a number"},
      {R"({"state": null, $Q})", 422, "null"},
      {R"({"state": "x"})", 422, "questions"},
      {R"({"state": "x", "questions": {}})", 422, "at least 1"},
      {R"({"state": "x", "questions": []})", 422, "an array"},
      {R"({"state": "x", "questions": {"": {"type": "noul", "instructions": "?"}}})", 422, "empty"},
      {R"({"state": "x", "questions": {"q": {"type": "noul"}}})", 422, "neither"},
      {R"({"state": "x", "questions": {"q": {"instructions": "?"}}})", 422, "type"},
      {R"({"state": "x", $C: ["a"]}}})", 422, "array"},
      {R"({"state": "x", $C: {}}}})", 422, "got 0"},
      {R"({"state": "x", $C: {"a": 1}}}})", 422, "a number"},
      {R"({"state": "x", $S: []}}})", 422, "got 0"},
      {R"({"state": "x", $S: [null]}}})", 422, "null"},
      {R"({"state": "x", $S: [1,2,3,4,5,6,7,8,9,10,11]}}})", 422, "got 11"},
      {R"({"state": "x", "image": "y", $Q})", 400, "\"image\""},
      {R"({"state": "x", "stream": true, $Q})", 422, "streamed"},
      {R"({"state": "x", "model": 1, $Q})", 422, "model"},
      {R"({"state": "x", "assets": {}, $Q})", 422, "empty"},
      {R"({"state": "x", "assets": {" ": {"type": "image", "data_base64": "AAAA"}}, $Q})", 422,
       "blank"},
      {R"({"state": "p", "assets": {"p": {"type": "image", "data_base64": "AAA"}}, $Q})", 422,
       "base64"},
      {R"({"state": "p", "assets": {"p": {"type": "image", "data_base64": ""}}, $Q})", 400,
       "no bytes"},
      {R"({"state": "p", "assets": {"p": {"type": "image", "part": "asset-0"}}, $Q})", 422, "part"},
      {R"({"state": "p", "assets": {"p": {"type": "audio"}}, $Q})", 422, "image"},
      {R"({"state": "x", "images": ["http://example.com/a.png"], $Q})", 400, "not fetched"},
      {R"({"state": "x", "images": "AAAA", $Q})", 422, "array"},
      {R"({"state": "x", "images": ["data:text/plain;base64,AAAA"], $Q})", 400, "data URL"},
  };
  for (const Refused& r : all) {
    const Outcome out = read(r.body);
    EXPECT_EQ(out.error.status, r.status) << r.body << "\n" << out.error.message;
    EXPECT_NE(out.error.message.find(r.in_message), std::string::npos) << r.body << "\n"
                                                                       << out.error.message;
    EXPECT_FALSE(nlohmann::json::parse(error_body(out.error, Api::kSystemOne)).empty());
    EXPECT_FALSE(nlohmann::json::parse(error_body(out.error, Api::kDecisions)).empty());
  }
}

TEST(SystemOneBody, BoundsDepthAndOptions) {
  EXPECT_EQ(read_state(std::string(100, '[') + std::string(100, ']')).error.status, 400);
  std::string options;
  for (int i = 0; i < 256; ++i) options += fmt::format("{}\"{}\": null", i > 0 ? "," : "", i);
  const Outcome out = read(R"({"state": "x", $C: {)" + options + "}}}}");
  EXPECT_EQ(out.error.status, 422);
  EXPECT_EQ(out.error.issues.at(0).loc,
            (std::vector<std::string>{"body", "questions", "q", "choice", "criteria"}));
}

TEST(SystemOneBody, WantsEveryPartClaimedOnce) {
  const auto form = [](const std::string& assets, int n_parts) {
    std::string out =
        "--b\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n"
        "{\"state\": \"p r\", \"assets\": {" +
        assets + "}, " + kNoul + "}\r\n";
    for (int i = 0; i < n_parts; ++i) {
      out += fmt::format("--b\r\nContent-Disposition: form-data; name=\"a{}\"\r\n\r\nxyz\r\n", i);
    }
    return out + "--b--\r\n";
  };
  const std::string type = "multipart/form-data; boundary=b";
  const std::string p = R"("p": {"type": "image", "part": "a0"})";
  EXPECT_EQ(read(form(p, 1), Api::kSystemOne, type).error.status, 0);
  EXPECT_EQ(read(form(p, 2), Api::kSystemOne, type).error.status, 400);
  EXPECT_EQ(read(form(p, 0), Api::kSystemOne, type).error.status, 422);
  EXPECT_EQ(read(form(p + R"(, "r": {"type": "image", "part": "a0"})", 1), Api::kSystemOne, type)
                .error.status,
            422);
  EXPECT_EQ(read("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n{}\r\n--b--",
                 Api::kSystemOne, type)
                .error.status,
            400);
}

TEST(Body, WantsAKnownMediaType) {
  EXPECT_EQ(read("{}", Api::kSystemOne, "text/plain").error.status, 415);
  EXPECT_EQ(read("{}", Api::kSystemOne, "").error.status, 415);
}

TEST(DecisionsBody, ServesSystemOneWhenThereIsAState) {
  const Outcome out = read("{\"state\": \"x\", " + kNoul + "}", Api::kDecisions);
  EXPECT_EQ(out.error.status, 0);
  EXPECT_EQ(out.request.api, Api::kSystemOne);
}

TEST(DecisionsBody, RefusesInWords) {
  const std::string q = R"("questions": [{"type": "predicate", "instructions": "?"}])";
  const std::pair<std::string, int> all[] = {
      {"{" + q + "}", 422},
      {R"({"input": 4, )" + q + "}", 422},
      {R"({"input": "x", "questions": []})", 422},
      {R"({"input": "x", "questions": [{"type": "predicate"}]})", 422},
      {R"({"input": "x", "questions": [{"type": "rank", "instructions": "?"}]})", 422},
      {R"({"input": "x", $C: [{"value": "a"}]}]})", 422},
      {R"({"input": "x", $C: [{"value": "a"}, {"value": "a"}]}]})", 422},
      {R"({"input": "x", $C: [{"value": 1}, {"value": 2}]}]})", 422},
      {R"({"input": "x", "questions": [{"type": "score", "instructions": "?", "levels": []}]})",
       422},
      {R"({"input": "x", "temperature": 1, )" + q + "}", 400},
      {R"({"input": [{"role": "robot", "content": "x"}], )" + q + "}", 422},
      {R"({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}], )" + q + "}",
       422},
      {R"({"input": [$U: [{"type": "input_file"}]}], )" + q + "}", 422},
      {R"({"input": [$U: [{"type": "input_image", "file_id": "f"}]}], )" + q + "}", 400},
      {R"({"input": [$U: [{"type": "input_image", "image_url": "https://a"}]}], )" + q + "}", 400},
      {R"({"input": [$U: [{"type": "input_json", "data": [1]}]}], )" + q + "}", 422},
      {R"({"input": [{"role": "system", "content": [{"type": "input_image"}]}], )" + q + "}", 422},
  };
  for (const auto& [body, status] : all) {
    const Outcome out = read(body, Api::kDecisions);
    EXPECT_EQ(out.error.status, status) << body << "\n" << out.error.message;
    const auto json = nlohmann::json::parse(error_body(out.error, out.request.api));
    EXPECT_TRUE(json["error"]["message"].is_string()) << body;
  }
}

TEST(DecisionsBody, AnEarlierPrefixStaysOneWhenItemsFollow) {
  const std::string q = R"(], "questions": [{"type": "predicate", "instructions": "?"}]})";
  const std::string one = R"({"input": [$U: "a"})";
  const std::string more = R"(, {"role": "assistant", "content": "b"})";
  const std::string shorter = read(one + q, Api::kDecisions).request.state;
  const std::string longer = read(one + more + q, Api::kDecisions).request.state;
  EXPECT_EQ(shorter, "a");
  EXPECT_EQ(longer, "a\n\nAssistant: b");
}

}  // namespace
}  // namespace okibi::server
