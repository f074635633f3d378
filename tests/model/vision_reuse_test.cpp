// What is kept of pictures, seen from an engine: known files and views are not computed again, keys
// keep apart what differs, and nothing kept changes a bit.
#include <gtest/gtest.h>

#include <future>

#include "model/golden_model.h"
#include "model/picture_files.h"
#include "reuse/vision_cache.h"

namespace okibi::testing {
namespace {

const std::string kFolder = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/";

EngineOptions options_with(int64_t cache_mib) {
  return {.model_path = kFolder + "lfm2vl-tiny-f32.gguf",
          .mmproj_path = kFolder + "mmproj-lfm2vl-tiny-f32.gguf",
          .vision_cache_mib = cache_mib,
          .n_threads = 2,
          .n_ctx = 8192};
}

Picture encode(Engine& engine, std::span<const uint8_t> file, const std::string& scope = "") {
  auto picture = engine.encode_picture(file, {.scope = scope});
  if (!picture.ok()) {
    ADD_FAILURE() << picture.status().message();
    return {};
  }
  return std::move(picture).value();
}

std::vector<std::vector<float>> rows_of(const Picture& picture) {
  std::vector<std::vector<float>> rows;
  for (const Picture::View& view : picture.views) rows.push_back(view.rows->values);
  return rows;
}

TEST(VisionReuse, ALargePictureIsFiveMissesThenFiveHitsWithTheSameBits) {
  const auto engine = open_engine(options_with(128)), off = open_engine(options_with(0));
  const std::vector<uint8_t> file = busy_png(1024, 1024);
  const Picture first = encode(*engine, file);
  EXPECT_EQ(first.views.size(), 5u);
  EXPECT_EQ(first.n_prompt_tokens, 1287u);
  EXPECT_FALSE(first.file_was_known);
  EXPECT_EQ(engine->vision_cache_stats().views.misses, 5u);
  EXPECT_EQ(engine->vision_cache_stats().views.hits, 0u);
  const Picture second = encode(*engine, file);
  EXPECT_TRUE(second.file_was_known);
  EXPECT_EQ(second.views_known, 5u);
  EXPECT_EQ(second.views_encoded, 0u);
  const VisionCacheStats stats = engine->vision_cache_stats();
  EXPECT_EQ(stats.views.misses, 5u);
  EXPECT_EQ(stats.views.hits, 5u);
  EXPECT_EQ(stats.bytes.misses, 1u);
  EXPECT_EQ(stats.bytes.hits, 1u);
  EXPECT_GT(stats.views.bytes, 1280 * 64 * sizeof(float));
  const Picture cold = encode(*off, file), cold_again = encode(*off, file);
  EXPECT_EQ(off->vision_cache_stats().views.misses, 10u);
  EXPECT_EQ(rows_of(first), rows_of(cold));
  EXPECT_EQ(rows_of(second), rows_of(cold_again));
}

TEST(VisionReuse, KeysKeepApartWhatDiffersOnlyInColourShapeOrScope) {
  const auto engine = open_engine(options_with(128));
  const Picture red = encode(*engine, plain_png(256, 256, {200, 0, 0}));
  const Picture blue = encode(*engine, plain_png(256, 256, {0, 0, 200}));
  EXPECT_NE(rows_of(red), rows_of(blue));
  // Equal bytes in two shapes: one plain colour, sides swapped.
  const Picture wide = encode(*engine, plain_png(384, 256, {9, 9, 9}));
  const Picture tall = encode(*engine, plain_png(256, 384, {9, 9, 9}));
  EXPECT_NE(rows_of(wide), rows_of(tall));
  EXPECT_EQ(engine->vision_cache_stats().views.misses, 4u);
  EXPECT_EQ(engine->vision_cache_stats().views.hits, 0u);
  const Picture scoped = encode(*engine, plain_png(256, 256, {200, 0, 0}), "tenant");
  EXPECT_FALSE(scoped.file_was_known);
  EXPECT_EQ(scoped.views_encoded, 1u);
  EXPECT_EQ(rows_of(scoped), rows_of(red));
}

TEST(VisionReuse, IdenticalTilesOfOnePictureAreEncodedOnce) {
  const auto engine = open_engine(options_with(128));
  const Picture picture = encode(*engine, plain_png(1024, 1024, {10, 200, 30}));
  ASSERT_EQ(picture.views.size(), 5u);
  // Four equal tiles, and the thumbnail, which is as large and as plain as they are.
  EXPECT_EQ(picture.views_encoded, 1u);
  EXPECT_EQ(picture.views_known, 4u);
}

TEST(VisionReuse, TheSamePixelsInOtherBytesMissTheFileAndHitTheView) {
  const auto engine = open_engine(options_with(128));
  encode(*engine, busy_png(300, 200, 4));
  const Picture again = encode(*engine, busy_png(300, 200, 4, "written by somebody else"));
  EXPECT_FALSE(again.file_was_known);
  EXPECT_EQ(again.views_known, 1u);
  EXPECT_EQ(again.views_encoded, 0u);
}

TEST(VisionReuse, ConcurrentRequestsForOnePictureEncodeItOnce) {
  const auto engine = open_engine(options_with(128));
  const std::vector<uint8_t> file = busy_png(1024, 512, 3);
  std::vector<std::future<Picture>> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(std::async(std::launch::async, [&] { return encode(*engine, file); }));
  }
  std::vector<std::vector<std::vector<float>>> all;
  for (auto& request : requests) all.push_back(rows_of(request.get()));
  for (const auto& rows : all) EXPECT_EQ(rows, all[0]);
  const VisionCacheStats stats = engine->vision_cache_stats();
  EXPECT_EQ(stats.bytes.misses, 1u);
  EXPECT_EQ(stats.views.misses, all[0].size());
  EXPECT_EQ(stats.views.hits + stats.views.joined, 23 * all[0].size());
}

TEST(VisionReuse, ADamagedFileFailsEveryTimeAndLeavesNothingBehind) {
  const auto engine = open_engine(options_with(128));
  std::vector<uint8_t> torn = busy_png(300, 200);
  torn.resize(torn.size() / 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine->encode_picture(torn).status().code(), StatusCode::kBadData);
  }
  const VisionCacheStats stats = engine->vision_cache_stats();
  EXPECT_EQ(stats.bytes.failures, 2u);
  EXPECT_EQ(stats.bytes.entries, 0u);
  EXPECT_EQ(encode(*engine, busy_png(300, 200)).views_encoded, 1u) << "others are served as before";
}

TEST(VisionReuse, RowsThatWereEvictedAreComputedAgainToTheSameBits) {
  const auto engine = open_engine(options_with(1));
  const std::vector<uint8_t> file = busy_png(512, 512, 77);
  const std::vector<std::vector<float>> rows = rows_of(encode(*engine, file));
  // 64 KiB of rows each: twenty others are more than one MiB.
  for (uint32_t i = 0; i < 20; ++i) encode(*engine, busy_png(512, 512, 100 + i));
  const VisionCacheStats stats = engine->vision_cache_stats();
  EXPECT_GT(stats.views.evictions, 0u);
  EXPECT_LE(stats.views.bytes + stats.bytes.bytes, stats.budget_bytes);
  const Picture again = encode(*engine, file);
  EXPECT_EQ(again.views_encoded, 1u);
  EXPECT_EQ(rows_of(again), rows);
}

TEST(VisionReuse, APictureIsFoundByItsHashWhileAllItsRowsAreKnown) {
  const auto engine = open_engine(options_with(128));
  const std::vector<uint8_t> file = busy_png(300, 200, 5);
  const Picture sent = encode(*engine, file);
  const auto found = engine->find_picture(sent.sha256);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(rows_of(*found), rows_of(sent));
  EXPECT_EQ(found->prompt_text, sent.prompt_text);
  EXPECT_EQ(engine->find_picture(sent.sha256, {.scope = "other"}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(engine->find_picture("12").status().code(), StatusCode::kInvalidArgument);
  engine->clear_vision_cache();
  EXPECT_EQ(engine->find_picture(sent.sha256).status().code(), StatusCode::kNotFound);
}

TEST(VisionReuse, EnginesShareNothing) {
  const auto one = open_engine(options_with(128)), two = open_engine(options_with(128));
  encode(*one, busy_png(300, 200));
  EXPECT_EQ(encode(*two, busy_png(300, 200)).views_encoded, 1u);
  // Another level is another numeric identity.
  EngineOptions options = options_with(128);
  options.cpu_level = "reference";
  const auto reference = open_engine(options);
  EXPECT_NE(reference->vision_info().identity, one->vision_info().identity);
  EXPECT_EQ(two->vision_info().identity, one->vision_info().identity);
}

TEST(VisionReuse, TheBudgetIsCheckedAndAPictureLargerThanTheContextRefused) {
  for (const int64_t mib : {-1, 4097}) {
    const auto engine = Engine::open(options_with(mib));
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.status().message().find("expected 0 (off) to 4096"), std::string::npos);
  }
  EngineOptions options = options_with(128);
  options.n_ctx = 1000;
  const auto engine = open_engine(options);
  const Status status = engine->encode_picture(busy_png(1024, 1024)).status();
  EXPECT_EQ(status.message(),
            "a picture of 1024 x 1024 pixels takes 1287 tokens; there is room for 1000");
  EXPECT_EQ(engine->vision_cache_stats().views.misses, 0u) << "refused before encoding";
}

}  // namespace
}  // namespace okibi::testing
