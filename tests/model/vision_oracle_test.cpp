// The picture side of LFM2-VL against its official implementation (oracles/lfm2vl-tiny), on every
// level that this host runs: normalised patches, projected rows, prompt tokens and the logits that
// follow them; and the promise that a view's rows depend on nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "cpu/cpu_backend.h"
#include "image/picture.h"
#include "image/view.h"
#include "model/golden_model.h"
#include "model/picture_files.h"
#include "model/vision/encoder.h"
#include "safetensors.h"

namespace okibi::testing {
namespace {

const std::string kFolder = OKIBI_GOLDEN_DIR "/lfm2vl-tiny/";

std::vector<image::View> views_of(const std::string& file, const image::ViewParams& params) {
  const std::vector<uint8_t> bytes = read_bytes(kFolder + file);
  auto picture = image::decode_picture(bytes);
  if (!picture.ok()) {
    ADD_FAILURE() << file << ": " << picture.status().message();
    return {};
  }
  auto plan = image::plan_views(picture->width, picture->height, params);
  EXPECT_TRUE(plan.ok());
  auto views = image::make_views(*picture, *plan, params);
  EXPECT_TRUE(views.ok());
  return std::move(views).value();
}

// A backend with nothing but the encoder.
struct Encoder {
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::VisionEncoder> encoder;

  std::vector<std::vector<float>> encode(const std::vector<const image::View*>& views) {
    EXPECT_TRUE(encoder->check(views).ok());
    return encoder->encode(*backend, views);
  }
};

Encoder open_encoder(const std::string& level, int n_threads, int64_t max_patches = 1024) {
  Encoder e;
  auto backend =
      cpu::make_cpu_backend({.level = cpu_level_from_name(level), .n_threads = n_threads});
  EXPECT_TRUE(backend.ok());
  e.backend = std::move(backend).value();
  auto file = gguf::File::open(kFolder + "mmproj-lfm2vl-tiny-f32.gguf");
  EXPECT_TRUE(file.ok());
  model::WeightLoader loader(*file, *e.backend, e.backend.get());
  auto encoder = model::VisionEncoder::load(loader, {.d_model = 64, .n_layers = 6});
  if (!encoder.ok()) {
    ADD_FAILURE() << encoder.status().message();
    return e;
  }
  e.encoder = std::move(encoder).value();
  EXPECT_TRUE(e.encoder->add_activations(*e.backend, max_patches).ok());
  return e;
}

// Patches as the oracle has them: row, column, channel.
std::vector<float> oracle_patch(const image::View& view, const model::VisionHparams& h, int32_t y,
                                int32_t x) {
  std::vector<float> planar(768), patch(768);
  model::PixelTable(h).read_patch(view, y, x, planar.data());
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 256; ++i) patch[3 * i + c] = planar[256 * c + i];
  }
  return patch;
}

void expect_patches(const std::vector<image::View>& views, const model::VisionHparams& h,
                    const std::vector<float>& head, const std::vector<float>& mean) {
  ASSERT_EQ(head.size(), views.size() * 8 * 768);
  ASSERT_EQ(mean.size(), views.size() * 768);
  for (size_t i = 0; i < views.size(); ++i) {
    const int32_t grid_w = views[i].width / 16, grid_h = views[i].height / 16;
    std::vector<double> sum(768, 0.0);
    for (int32_t n = 0; n < grid_w * grid_h; ++n) {
      const std::vector<float> patch = oracle_patch(views[i], h, n / grid_w, n % grid_w);
      for (size_t j = 0; j < 768; ++j) {
        sum[j] += patch[j];
        if (n >= 8) continue;
        ASSERT_NEAR(patch[j], head[(i * 8 + static_cast<size_t>(n)) * 768 + j], 1e-5)
            << "view " << i << ", patch " << n << ", value " << j;
      }
    }
    for (size_t j = 0; j < 768; ++j) {
      ASSERT_NEAR(sum[j] / (grid_w * grid_h), mean[i * 768 + j], 1e-5) << "view " << i;
    }
  }
}

TEST(VisionOracle, PatchesOfEveryPictureMatch) {
  Encoder e = open_encoder("reference", 1);
  const model::VisionHparams& h = e.encoder->hparams();
  const nlohmann::json golden = read_json(kFolder + "golden.json");
  const SafeTensors tensors(kFolder + "golden.safetensors");
  for (const auto& [list, stem] : {std::pair{"images", "img"}, {"kinds", "kind"}}) {
    for (size_t i = 0; i < golden.at(list).size(); ++i) {
      const std::string file = golden.at(list)[i].at("file"), key = stem + std::to_string(i);
      SCOPED_TRACE(file);
      expect_patches(views_of(file, h.views), h, tensors.floats(key + ".patches_head"),
                     tensors.floats(key + ".patches_mean"));
    }
  }
}

class VisionOracleLevels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, VisionOracleLevels, ::testing::ValuesIn(host_levels()),
                         [](const auto& info) { return info.param; });

TEST_P(VisionOracleLevels, ProjectedRowsOfEveryPictureMatch) {
  Encoder e = open_encoder(GetParam(), 2);
  const nlohmann::json golden = read_json(kFolder + "golden.json");
  const SafeTensors tensors(kFolder + "golden.safetensors");
  double worst_difference = 0, worst_cosine = 1;
  for (size_t i = 0; i < golden.at("images").size(); ++i) {
    const std::string file = golden.at("images")[i].at("file");
    const std::vector<image::View> views = views_of(file, e.encoder->hparams().views);
    ASSERT_EQ(views.size(), golden.at("images")[i].at("tiles")) << file;
    const std::vector<float> rows = e.encode({&views.back()})[0];
    const std::vector<float> want = tensors.floats("img" + std::to_string(i) + ".embed_last_tile");
    ASSERT_EQ(rows.size(), want.size()) << file;
    for (size_t begin = 0; begin < rows.size(); begin += 64) {
      double dot = 0, a = 0, b = 0;
      for (size_t j = begin; j < begin + 64; ++j) {
        dot += double{rows[j]} * want[j];
        a += double{rows[j]} * rows[j];
        b += double{want[j]} * want[j];
        worst_difference = std::max(worst_difference, std::abs(double{rows[j]} - want[j]));
      }
      const double cosine = dot / std::sqrt(a * b);
      worst_cosine = std::min(worst_cosine, cosine);
      ASSERT_GE(cosine, 0.99999) << file << ", row " << begin / 64;
    }
  }
  std::printf("  %s: largest difference %.2e, 1 - cosine %.1e\n", GetParam().c_str(),
              worst_difference, 1 - worst_cosine);
}

TEST_P(VisionOracleLevels, AViewsRowsAreTheSameBitsAloneAmongOthersAndOnThreads) {
  Encoder one = open_encoder(GetParam(), 1, 4096), three = open_encoder(GetParam(), 3, 4096);
  const image::ViewParams& params = one.encoder->hparams().views;
  std::vector<image::View> views;
  for (const char* file : {"images/img0_512x286.png", "images/img5_37x411.png",
                           "images/kind_palette.png", "images/img2_64x64.png"}) {
    views.push_back(views_of(file, params)[0]);
  }
  std::vector<const image::View*> all;
  for (const image::View& view : views) all.push_back(&view);
  const std::vector<std::vector<float>> together = three.encode(all);
  std::reverse(all.begin(), all.end());
  const std::vector<std::vector<float>> reversed = one.encode(all);
  for (size_t i = 0; i < views.size(); ++i) {
    const std::vector<float> alone = one.encode({&views[i]})[0];
    EXPECT_EQ(together[i], alone) << "view " << i;
    EXPECT_EQ(reversed[views.size() - 1 - i], alone) << "view " << i;
  }
}

}  // namespace
}  // namespace okibi::testing
