// Pictures in prompts, end to end, against the official implementation: token ids of the prompt and
// the logits of its last position, on every level; and the same bits however the prompt was cut,
// forked, cut back or restored.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "model/golden_model.h"
#include "model/picture_files.h"
#include "safetensors.h"

namespace okibi::testing {
namespace {

const std::string kFolder = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/";

std::shared_ptr<Engine> open_vision(const std::string& level, int n_threads = 2,
                                    int64_t cache_mib = 128) {
  return open_engine({.model_path = kFolder + "lfm2vl-tiny-f32.gguf",
                      .mmproj_path = kFolder + "mmproj-lfm2vl-tiny-f32.gguf",
                      .vision_cache_mib = cache_mib,
                      .cpu_level = level,
                      .n_threads = n_threads,
                      .kv_type = KvCacheType::kF32});
}

Picture encode(Engine& engine, std::span<const uint8_t> file) {
  auto picture = engine.encode_picture(file);
  if (!picture.ok()) {
    ADD_FAILURE() << picture.status().message();
    return {};
  }
  return std::move(picture).value();
}

// The chat prompt of the pictures with texts[0] before the first, texts[i] behind the i-th, made of
// parts as okibi makes it.
Prompt prompt_of(Engine& engine, const std::vector<Picture>& pictures,
                 const std::vector<std::string>& texts) {
  std::vector<PromptPart> parts = {{"<|im_start|>user\n", true}, {texts[0], false}};
  for (size_t i = 0; i < pictures.size(); ++i) {
    parts.push_back({pictures[i].prompt_text, true});
    parts.push_back({texts[i + 1], false});
  }
  parts.push_back({"<|im_end|>\n<|im_start|>assistant\n", true});
  auto ids = engine.text().encode_parts(parts);
  EXPECT_TRUE(ids.ok());
  auto prompt = engine.place_pictures(*ids, pictures);
  if (!prompt.ok()) {
    ADD_FAILURE() << prompt.status().message();
    return {};
  }
  return std::move(prompt).value();
}

// What a user wrote in a golden prompt: before, between and behind the pictures.
std::vector<std::string> texts_of(Engine& engine, const std::vector<TokenId>& ids) {
  const std::string head = "<|im_start|>user\n", begin = "<|image_start|>", end = "<|image_end|>";
  std::string rest = engine.text().decode(ids, /*show_special=*/true);
  rest = rest.substr(rest.find(head) + head.size());
  rest = rest.substr(0, rest.find("<|im_end|>"));
  std::vector<std::string> texts;
  for (size_t at = rest.find(begin); at != std::string::npos; at = rest.find(begin)) {
    texts.push_back(rest.substr(0, at));
    rest = rest.substr(rest.find(end) + end.size());
  }
  texts.push_back(rest);
  return texts;
}

std::vector<float> last_logits(Engine& engine, const Prompt& prompt, uint32_t max_chunk = 0) {
  auto session = engine.new_session();
  EXPECT_TRUE(session.ok());
  const Status status = (*session)->append(prompt, {.max_chunk = max_chunk});
  EXPECT_TRUE(status.ok()) << status.message();
  return {(*session)->logits().begin(), (*session)->logits().end()};
}

// Every golden prompt of at most max_tokens tokens.
void check_golden_prompts(const std::string& level, size_t max_tokens) {
  const std::shared_ptr<Engine> engine = open_vision(level);
  ASSERT_NE(engine, nullptr);
  const nlohmann::json golden = read_json(kFolder + "golden.json");
  const SafeTensors tensors(kFolder + "golden.safetensors");
  double worst = 0;
  for (const auto& [list, stem] :
       {std::pair{"images", "img"}, {"kinds", "kind"}, {"multi", "multi"}}) {
    for (size_t i = 0; i < golden.at(list).size(); ++i) {
      const nlohmann::json& entry = golden.at(list)[i];
      const std::string key = stem + std::to_string(i);
      SCOPED_TRACE(key);
      const auto ids = entry.at("tokens").get<std::vector<TokenId>>();
      if (ids.size() > max_tokens) continue;
      std::vector<std::string> files;
      if (entry.contains("files")) {
        files = entry.at("files").get<std::vector<std::string>>();
      } else {
        files.push_back(entry.at("file"));
      }
      std::vector<Picture> pictures;
      for (const std::string& file : files) {
        pictures.push_back(encode(*engine, read_bytes(kFolder + file)));
      }
      const Prompt prompt = prompt_of(*engine, pictures, texts_of(*engine, ids));
      ASSERT_EQ(prompt.tokens, ids);
      const std::vector<float> want = tensors.floats(key + ".last_logits");
      const std::vector<float> got = last_logits(*engine, prompt);
      ASSERT_EQ(got.size(), want.size());
      const double tolerance = 1e-3 * std::max(1.0, standard_deviation(want));
      for (size_t j = 0; j < want.size(); ++j) {
        const double difference = std::fabs(got[j] - want[j]);
        ASSERT_LE(difference, tolerance) << "id " << j;
        worst = std::max(worst, difference);
      }
    }
  }
  std::printf("  %s: largest difference of logits %.2e\n", level.c_str(), worst);
}

class VisionPrompt : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, VisionPrompt, ::testing::ValuesIn(host_levels()),
                         [](const auto& info) { return info.param; });

TEST_P(VisionPrompt, TokensAndLastLogitsMatchTheOfficialImplementation) {
  // The reference level takes half a minute for the long ones, which the slow run has.
  check_golden_prompts(GetParam(), GetParam() == "reference" ? 300 : 10000);
}

TEST(SlowVisionPrompt, TheReferenceLevelMatchesOnTheLongPromptsToo) {
  check_golden_prompts("reference", 10000);
}

// Two pictures with text between them, 64 and 144 rows.
struct TwoPictures {
  std::shared_ptr<Engine> engine = open_vision("");
  std::vector<Picture> pictures = {
      encode(*engine, read_bytes(kFolder + "images/img2_64x64.png")),
      encode(*engine, read_bytes(kFolder + "images/img0_512x286.png"))};
  Prompt prompt = prompt_of(*engine, pictures, {"", " and ", "What is on it?"});
};

TEST(VisionPromptBits, AreTheSameHoweverThePromptIsCutAndOnThreads) {
  TwoPictures two;
  const std::vector<float> whole = last_logits(*two.engine, two.prompt);
  for (const uint32_t chunk : {1u, 7u, 64u, 100u}) {
    EXPECT_EQ(last_logits(*two.engine, two.prompt, chunk), whole) << chunk;
  }
  const std::shared_ptr<Engine> other = open_vision("", 3);
  const std::vector<Picture> again = {
      encode(*other, read_bytes(kFolder + "images/img2_64x64.png")),
      encode(*other, read_bytes(kFolder + "images/img0_512x286.png"))};
  EXPECT_EQ(last_logits(*other, prompt_of(*other, again, {"", " and ", "What is on it?"})), whole);
}

TEST(VisionPromptBits, DependOnThePictureAndNotOnItsTokensAlone) {
  TwoPictures two;
  const std::vector<Picture> swapped = {two.pictures[0], encode(*two.engine, busy_png(512, 286))};
  const Prompt other = prompt_of(*two.engine, swapped, {"", " and ", "What is on it?"});
  ASSERT_EQ(other.tokens, two.prompt.tokens);
  EXPECT_NE(last_logits(*two.engine, other), last_logits(*two.engine, two.prompt));
}

TEST(VisionPromptBits, SurviveForkSnapshotTruncateAndRestore) {
  TwoPictures two;
  const std::vector<float> whole = last_logits(*two.engine, two.prompt);
  auto session = *two.engine->new_session();
  ASSERT_TRUE(session->append(two.prompt).ok());
  // Cut inside the second picture, where the replay needs some of its rows again.
  const size_t cut = two.prompt.rows[1].first + 50;
  ASSERT_TRUE(session->truncate(cut).ok());
  auto fork = *session->fork();
  Prompt rest;
  rest.tokens.assign(two.prompt.tokens.begin() + static_cast<long>(two.prompt.rows[1].first),
                     two.prompt.tokens.end());
  rest.rows.push_back({0, two.prompt.rows[1].rows});
  for (Session* s : {session.get(), fork.get()}) {
    ASSERT_TRUE(s->truncate(two.prompt.rows[1].first).ok());
    ASSERT_TRUE(s->append(rest).ok());
    EXPECT_EQ(std::vector<float>(s->logits().begin(), s->logits().end()), whole);
  }
  auto snapshot = session->snapshot();
  ASSERT_TRUE(snapshot.ok());
  ASSERT_TRUE(session->truncate(3).ok());
  ASSERT_TRUE(session->append(std::vector<TokenId>{5, 6, 7}).ok());
  ASSERT_TRUE(session->restore(*snapshot).ok());
  ASSERT_TRUE(session->truncate(two.prompt.tokens.size() - 1).ok());
  ASSERT_TRUE(session->append(std::vector<TokenId>{two.prompt.tokens.back()}).ok());
  EXPECT_EQ(std::vector<float>(session->logits().begin(), session->logits().end()), whole);
}

TEST(VisionPromptBits, AreTheSameBesideOthersInOneStep) {
  TwoPictures two;
  const std::vector<float> whole = last_logits(*two.engine, two.prompt);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Prompt text{.tokens = std::vector<TokenId>(static_cast<size_t>(30 + i), 40 + i),
                        .rows = {}};
      for (int n = 0; n < 3; ++n) {
        if (i % 2 == 0) {
          EXPECT_EQ(last_logits(*two.engine, two.prompt, 40), whole);
        } else {
          last_logits(*two.engine, text, 3);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(VisionPromptErrors, SayWhatDoesNotFitTogether) {
  TwoPictures two;
  auto prompt = two.engine->place_pictures(two.prompt.tokens, {two.pictures.data(), 1});
  EXPECT_EQ(prompt.status().message(),
            "the prompt has 208 image tokens, the 1 pictures have 64 rows; expected as many of one "
            "as of the other");
  Prompt moved = two.prompt;
  moved.rows[1].first = moved.rows[0].first + 3;
  auto session = *two.engine->new_session();
  EXPECT_EQ(session->append(moved).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->n_tokens(), 0u);
  const std::shared_ptr<Engine> blind =
      open_engine({.model_path = kFolder + "lfm2vl-tiny-f32.gguf", .kv_type = KvCacheType::kF32});
  ASSERT_NE(blind, nullptr);
  EXPECT_EQ(blind->encode_picture(plain_png(64, 64, {1, 2, 3})).status().code(),
            StatusCode::kUnsupported);
  auto deaf = *blind->new_session();
  EXPECT_EQ(deaf->append(two.prompt).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace okibi::testing
