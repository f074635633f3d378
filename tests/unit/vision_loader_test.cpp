// Vision files that do not fit: every error names the key or tensor, what was found and what was
// expected; files with and without the projector's norm load.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "cpu/cpu_backend.h"
#include "gguf/reader.h"
#include "model/synth/families.h"
#include "model/synth/write.h"
#include "model/vision/encoder.h"

namespace okibi::model {
namespace {

constexpr TextSide kText{.d_model = 32, .n_layers = 6};

SynthPlan small_plan() {
  return synth::plan_siglip2({.d_model = 32,
                              .n_layers = 2,
                              .n_heads = 2,
                              .d_ff = 64,
                              .projector_hidden = 64,
                              .d_text = 32});
}

void set_key(SynthPlan& plan, std::string_view name, SynthValue value) {
  for (auto& [key, old] : plan.keys) {
    if (key == name) old = std::move(value);
  }
}

SynthTensor& tensor(SynthPlan& plan, std::string_view name) {
  for (SynthTensor& t : plan.tensors) {
    if (t.name == name) return t;
  }
  ADD_FAILURE() << name;
  return plan.tensors[0];
}

// Loads the plan's file, at the reference level if nothing is said; `fn` sees the encoder.
Status load(const SynthPlan& plan, DType type = DType::kF32,
            const std::function<void(VisionEncoder&, ops::Backend&)>& fn = nullptr,
            const cpu::CpuBackendOptions& options = {.level = CpuLevel::kReference}) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("okibi_vision_" + std::to_string(::getpid()) + ".gguf");
  EXPECT_TRUE(write_synth(plan, path.string(), {.type = type}).ok());
  Status status = ok_status();
  {
    auto backend = cpu::make_cpu_backend(options);
    auto file = gguf::File::open(path.string());
    if (!file.ok()) {
      ADD_FAILURE() << file.status().message();
      return file.status();
    }
    WeightLoader loader(*file, **backend, backend->get());
    auto encoder = VisionEncoder::load(loader, kText);
    status = encoder.status();
    if (encoder.ok() && fn) fn(**encoder, **backend);
  }
  std::filesystem::remove(path);
  return status;
}

TEST(VisionLoader, TakesNumbersFromTheFileAndEveryWeightType) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const Status status = load(small_plan(), type, [](VisionEncoder& e, ops::Backend& backend) {
      EXPECT_EQ(e.hparams().head_dim, 16);
      EXPECT_EQ(e.hparams().position_side, 16);
      EXPECT_EQ(e.hparams().projector_hidden, 64);
      EXPECT_FALSE(e.hparams().has_input_norm);
      ASSERT_TRUE(e.add_activations(backend, 64).ok());
      image::View view{.width = 64, .height = 32, .rgb = std::vector<uint8_t>(64 * 32 * 3, 77)};
      const image::View* const views[] = {&view};
      ASSERT_TRUE(e.check(views).ok());
      EXPECT_EQ(e.encode(backend, views)[0].size(), 2u * 32);
    });
    EXPECT_TRUE(status.ok()) << name_of(type) << ": " << status.message();
  }
}

TEST(VisionLoader, AppliesTheProjectorsNormIfAndOnlyIfTheFileHasOne) {
  std::vector<std::vector<float>> rows;
  for (const bool has_norm : {false, true}) {
    SynthPlan plan = small_plan();
    if (has_norm) {
      plan.norm("mm.input_norm.weight", 128);
      plan.floats("mm.input_norm.bias", {128}, 0.0f, 0.02f);
    }
    const Status status = load(plan, DType::kF32, [&](VisionEncoder& e, ops::Backend& backend) {
      EXPECT_EQ(e.hparams().has_input_norm, has_norm);
      // A first-generation model of this width has no thumbnail.
      EXPECT_EQ(e.hparams().views.thumbnail, !has_norm);
      ASSERT_TRUE(e.add_activations(backend, 64).ok());
      image::View view{.width = 32, .height = 32, .rgb = std::vector<uint8_t>(32 * 32 * 3, 200)};
      const image::View* const views[] = {&view};
      rows.push_back(e.encode(backend, views)[0]);
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0], rows[1]);
}

double smallest_cosine(const std::vector<float>& a, const std::vector<float>& b, size_t width) {
  double smallest = 1;
  for (size_t begin = 0; begin < a.size(); begin += width) {
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = begin; i < begin + width; ++i) {
      dot += double{a[i]} * b[i];
      aa += double{a[i]} * a[i];
      bb += double{b[i]} * b[i];
    }
    smallest = std::min(smallest, dot / std::sqrt(aa * bb));
  }
  return smallest;
}

// 8-bit activations, and at the amx level rounded attention, against exact products of the same
// weights.
TEST(VisionLoader, EveryLevelsRowsOfQuantisedFilesAreCloseToExactOnes) {
  const SynthPlan plan = synth::plan_siglip2({.d_model = 128,
                                              .n_layers = 4,
                                              .n_heads = 2,
                                              .d_ff = 256,
                                              .projector_hidden = 128,
                                              .d_text = 32});
  image::View view{.width = 160, .height = 128, .rgb = {}};
  for (uint32_t i = 0; i < 160 * 128 * 3; ++i) {
    view.rgb.push_back(static_cast<uint8_t>((i / 48 * 2654435761u) >> 24));
  }
  const image::View* const views[] = {&view};
  const auto encode = [&](const cpu::CpuBackendOptions& options) {
    std::vector<float> rows;
    const auto run = [&](VisionEncoder& e, ops::Backend& backend) {
      ASSERT_TRUE(e.add_activations(backend, 96).ok());
      rows = e.encode(backend, views)[0];
    };
    const Status status = load(plan, DType::kQ8_0, run, options);
    EXPECT_TRUE(status.ok()) << status.message();
    return rows;
  };
  const std::vector<float> exact =
      encode({.level = CpuLevel::kReference, .activations = ActivationType::kF32});
  ASSERT_EQ(exact.size(), 20u * 32);
  for (int level = 0; level <= static_cast<int>(best_level(host_cpu())); ++level) {
    const double cosine =
        smallest_cosine(encode({.level = static_cast<CpuLevel>(level)}), exact, 32);
    EXPECT_GE(cosine, 0.999) << cpu_level_name(static_cast<CpuLevel>(level));
    EXPECT_LT(cosine, 1.0 - 1e-9) << "the quantised form was not what ran";
  }
}

// 16 x 16 patches and more than the 576 rows that a kernel takes at a time.
TEST(VisionLoader, RoundedRowsHaveTheSameBitsAloneAmongOthersAndOnThreads) {
  const SynthPlan plan = small_plan();
  std::vector<image::View> made;
  for (const int side : {256, 384, 96}) {
    image::View view{.width = side, .height = side, .rgb = {}};
    for (int i = 0; i < side * side * 3; ++i) {
      view.rgb.push_back(
          static_cast<uint8_t>((static_cast<uint32_t>(i / 48 + side) * 2654435761u) >> 24));
    }
    made.push_back(std::move(view));
  }
  const image::View* const all[] = {&made[0], &made[1], &made[2]};
  for (const DType type : {DType::kQ8_0, DType::kF16, DType::kBF16}) {
    std::vector<std::vector<float>> expected;
    for (const int n_threads : {1, 2}) {
      const auto run = [&](VisionEncoder& e, ops::Backend& backend) {
        ASSERT_TRUE(e.add_activations(backend, 1024).ok());
        const std::vector<std::vector<float>> together = e.encode(backend, all);
        if (expected.empty()) expected = together;
        EXPECT_EQ(together, expected) << n_threads << " threads";
        for (size_t i = 0; i < std::size(all); ++i) {
          EXPECT_EQ(e.encode(backend, {&all[i], 1})[0], expected[i]) << "view " << i << " alone";
        }
      };
      const Status status =
          load(plan, type, run, {.level = best_level(host_cpu()), .n_threads = n_threads});
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(VisionLoader, ReadsTilingFromTheFileWhereItIsThere) {
  SynthPlan plan = small_plan();
  plan.u32("clip.vision.preproc_min_tiles", 1);
  plan.u32("clip.vision.preproc_max_tiles", 4);
  const Status status = load(plan, DType::kF32, [](VisionEncoder& e, ops::Backend&) {
    EXPECT_EQ(e.hparams().views.min_tiles, 1);
    EXPECT_EQ(e.hparams().views.max_tiles, 4);
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

void expect_error(const SynthPlan& plan, const std::string& want) {
  const Status status = load(plan);
  EXPECT_EQ(status.message(), want);
}

TEST(VisionLoader, ErrorsNameTheKeyWhatWasFoundAndWhatWasExpected) {
  SynthPlan plan = small_plan();
  set_key(plan, "clip.projector_type", std::string("qwen2vl"));
  expect_error(plan, "clip.projector_type: found \"qwen2vl\", expected \"lfm2\"");
  plan = small_plan();
  set_key(plan, "general.type", std::string("model"));
  expect_error(plan, "general.type: found \"model\", expected \"mmproj\"");
  plan = small_plan();
  set_key(plan, "clip.vision.projection_dim", uint32_t{48});
  expect_error(plan,
               "clip.vision.projection_dim: found 48, the text model has rows of 32 values; the "
               "two files do not belong together");
  plan = small_plan();
  set_key(plan, "clip.vision.attention.head_count", uint32_t{5});
  expect_error(plan, "clip.vision.attention.head_count: 5 heads do not divide the width of 32");
  plan = small_plan();
  set_key(plan, "clip.vision.image_std", std::vector<float>{0.5f, 0.0f, 0.5f});
  expect_error(plan,
               "clip.vision.image_std: expected three finite positive numbers, found 3 entries");
  plan = small_plan();
  set_key(plan, "clip.vision.patch_size", uint32_t{0});
  expect_error(plan, "clip.vision.patch_size: found 0, expected 1 to 64");
}

TEST(VisionLoader, ErrorsNameTheTensorWhatWasFoundAndWhatWasExpected) {
  SynthPlan plan = small_plan();
  tensor(plan, "v.blk.1.attn_k.weight").ne[1] = 16;
  expect_error(plan,
               "v.blk.1.attn_k.weight: expected rows of 32 values and 32 of them, the file has "
               "(32, 16)");
  plan = small_plan();
  tensor(plan, "v.position_embd.weight").ne[1] = 250;
  expect_error(plan,
               "v.position_embd.weight: expected a square number of rows of 32 values, the file "
               "has (32, 250)");
  plan = small_plan();
  tensor(plan, "v.patch_embd.weight").ne[2] = 4;
  expect_error(plan,
               "v.patch_embd.weight: expected 768 values for each of 32 outputs, the file has (16, "
               "16, 4, 32)");
  plan = small_plan();
  tensor(plan, "v.blk.0.ln2.bias").name = "v.blk.0.ln2.offset";
  expect_error(plan, "the tensor v.blk.0.ln2.bias is missing");
}

TEST(VisionLoader, ViewsThatDoNotFitAreRefused) {
  const Status status = load(small_plan(), DType::kF32, [](VisionEncoder& e, ops::Backend& b) {
    ASSERT_TRUE(e.add_activations(b, 16).ok());
    image::View odd{.width = 48, .height = 32, .rgb = std::vector<uint8_t>(48 * 32 * 3)};
    image::View large{.width = 96, .height = 64, .rgb = std::vector<uint8_t>(96 * 64 * 3)};
    const image::View* const first[] = {&odd};
    const image::View* const second[] = {&large};
    EXPECT_EQ(e.check(first).message(),
              "a view of 48 x 32 pixels (4608 bytes): expected sides of a multiple of 32");
    EXPECT_EQ(e.check(second).message(), "views of 24 patches: the encoder takes 16 in one step");
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace okibi::model
