// The synthetic shapes: their totals are those of the published models, their random rows have the
// wanted spread, and what is written reads back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gguf/check_data.h"
#include "gguf/reader.h"
#include "model/synth/families.h"
#include "model/synth/plan.h"
#include "model/synth/random_rows.h"
#include "model/synth/write.h"
#include "model/vocabulary.h"
#include "tensor/dequantize.h"
#include "tokenizer/chat_layout.h"

namespace okibi::model {
namespace {

SynthShape shape_of(std::string_view name) {
  auto shape = make_synth_shape(name);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return std::move(shape).value();
}

const SynthTensor& tensor_of(const SynthPlan& plan, std::string_view name) {
  for (const SynthTensor& tensor : plan.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return plan.tensors[0];
}

template <typename T>
const T& key_of(const SynthPlan& plan, std::string_view name) {
  for (const auto& [key, value] : plan.keys) {
    if (key == name) return std::get<T>(value);
  }
  ADD_FAILURE() << "no key " << name;
  static const T none{};
  return none;
}

TEST(SynthShapes, HaveTheParameterTotalsOfThePublishedModels) {
  EXPECT_EQ(shape_of("smollm2-135m").text.n_parameters(), 134'515'008u);
  EXPECT_EQ(shape_of("lfm2-350m").text.n_parameters(), 354'483'968u);
  EXPECT_EQ(shape_of("lfm2-1.2b").text.n_parameters(), 1'170'340'608u);

  const SynthShape vl450 = shape_of("lfm2.5-vl-450m");
  EXPECT_EQ(vl450.text.n_parameters(), 354'483'968u);
  EXPECT_EQ(vl450.vision.n_parameters(), 85'843'200u + 8'391'680u);
  const SynthShape vl16 = shape_of("lfm2.5-vl-1.6b");
  EXPECT_EQ(vl16.text.n_parameters(), 1'170'340'608u);
  EXPECT_EQ(vl16.vision.n_parameters(), 412'649'712u + 13'635'584u);

  EXPECT_NEAR(shape_of("flash-next").text.n_parameters() / 1e9, 176.94, 0.005);
  EXPECT_NEAR(shape_of("flash-next-mini").text.n_parameters() / 1e9, 1.12, 0.005);
  EXPECT_NEAR(shape_of("qwen3.5-0.8b").text.n_parameters() / 1e9, 0.75, 0.01);
}

TEST(SynthShapes, HaveTheTensorCountsOfThePublishedModels) {
  EXPECT_EQ(shape_of("smollm2-135m").text.tensors.size(), 272u);
  EXPECT_EQ(shape_of("lfm2-350m").text.tensors.size(), 148u);
  EXPECT_EQ(shape_of("lfm2.5-vl-450m").vision.tensors.size(), 201u);
  EXPECT_EQ(shape_of("lfm2.5-vl-1.6b").vision.tensors.size(), 441u);
  EXPECT_EQ(shape_of("flash-next").text.tensors.size(), 1224u);
}

TEST(SynthShapes, StoreTheTypesThatPublishedFilesStore) {
  // The published Q4_0 file of LFM2 has 55 F32, 92 Q4_0 and one Q6_K tensor.
  int n_f32 = 0, n_q4_0 = 0, n_q6_k = 0;
  for (const SynthTensor& tensor : shape_of("lfm2-350m").text.tensors) {
    const DType type = synth_tensor_type(tensor, DType::kQ4_0);
    n_f32 += type == DType::kF32;
    n_q4_0 += type == DType::kQ4_0;
    n_q6_k += type == DType::kQ6_K;
  }
  EXPECT_EQ(n_f32, 55);
  EXPECT_EQ(n_q4_0, 92);
  EXPECT_EQ(n_q6_k, 1);
  // That of SmolLM2 as Q4_1 has a Q8_0 embedding: 256 does not divide 576.
  const SynthPlan smollm2 = shape_of("smollm2-135m").text;
  EXPECT_EQ(synth_tensor_type(tensor_of(smollm2, "token_embd.weight"), DType::kQ4_1), DType::kQ8_0);
  EXPECT_EQ(synth_tensor_type(tensor_of(smollm2, "blk.0.attn_q.weight"), DType::kQ4_K),
            DType::kQ5_0);
  // The vision files: 75 F16 + 126 F32, and 74 Q8_0 + 127 F32.
  int n_f16 = 0, n_q8_0 = 0;
  for (const SynthTensor& tensor : shape_of("lfm2.5-vl-450m").vision.tensors) {
    n_f16 += synth_tensor_type(tensor, DType::kF16) == DType::kF16;
    n_q8_0 += synth_tensor_type(tensor, DType::kQ8_0) == DType::kQ8_0;
  }
  EXPECT_EQ(n_f16, 75);
  EXPECT_EQ(n_q8_0, 74);
  const SynthPlan flash = shape_of("flash-next-mini").text;
  EXPECT_EQ(synth_tensor_type(tensor_of(flash, "per_layer_token_embd.weight"), DType::kQ4_K),
            DType::kIQ4_NL);
  EXPECT_EQ(synth_tensor_type(tensor_of(flash, "blk.0.ffn_down_exps.weight"), DType::kQ4_K),
            DType::kQ5_0);
}

TEST(SynthShapes, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto shape = make_synth_shape("lfm9");
  ASSERT_FALSE(shape.ok());
  EXPECT_NE(shape.status().message().find("lfm2-350m"), std::string::npos);
}

TEST(SynthShapes, DeriveTheNgramConstantsOfThePublishedCheckpoint) {
  const synth::NgramConstants c = synth::ngram_constants(248320, 20'000'000);
  EXPECT_EQ(c.multipliers, (std::vector<uint64_t>{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(c.vocab_sizes.front(), 20000003u);
  EXPECT_EQ(c.vocab_sizes.back(), 20000171u);
  EXPECT_EQ(c.offsets[1], 20000003u);
  EXPECT_EQ(c.offsets.back(), 300001275u);
  EXPECT_EQ(c.n_rows, 320001536u);
}

TEST(SynthShapes, HaveCompleteVocabulariesWithoutDuplicates) {
  for (const char* name : {"smollm2-135m", "lfm2-350m", "qwen3.5-0.8b", "flash-next-mini"}) {
    const SynthPlan plan = shape_of(name).text;
    const auto& tokens = key_of<std::vector<std::string>>(plan, "tokenizer.ggml.tokens");
    EXPECT_EQ(tokens.size(), tensor_of(plan, "token_embd.weight").ne[1]);
    const std::set<std::string> known(tokens.begin(), tokens.end());
    EXPECT_EQ(known.size(), tokens.size()) << name;
    EXPECT_FALSE(known.contains("")) << name;
    for (const auto& merge : key_of<std::vector<std::string>>(plan, "tokenizer.ggml.merges")) {
      const size_t space = merge.find(' ', 1);
      ASSERT_TRUE(known.contains(merge.substr(0, space))) << name << ": " << merge;
      ASSERT_TRUE(known.contains(merge.substr(space + 1))) << name << ": " << merge;
    }
  }
}

TEST(SynthShapes, PutSpecialTokensAtThePublishedIds) {
  const auto tokens_of = [](const SynthPlan& plan) {
    return key_of<std::vector<std::string>>(plan, "tokenizer.ggml.tokens");
  };
  const auto lfm2 = tokens_of(shape_of("lfm2.5-vl-450m").text);
  EXPECT_EQ(lfm2[7], "<|im_end|>");
  EXPECT_EQ(lfm2[396], "<image>");
  EXPECT_EQ(lfm2[496], "<|img_row_10_col_10|>");
  EXPECT_EQ(lfm2[499], "<|image_end|>");
  const auto qwen = tokens_of(shape_of("flash-next").text);
  EXPECT_EQ(qwen[248044], "<|endoftext|>");
  EXPECT_EQ(qwen[248046], "<|im_end|>");
  EXPECT_EQ(qwen[248056], "<|image_pad|>");
  const SynthPlan mini = shape_of("flash-next-mini").text;
  EXPECT_EQ(tokens_of(mini)[631], "<|endoftext|>");
  EXPECT_EQ(key_of<uint32_t>(mini, "qwen4exp.ple.eos_token_id"), 631u);
  EXPECT_EQ(key_of<uint32_t>(mini, "qwen4exp.ple.image_token_id"), 636u);
}

struct Moments {
  double mean, std_dev, largest;
};

Moments moments_of(DType type, float mean, float std_dev) {
  auto rows = RandomRows::create(type, mean, std_dev, 1, "blk.0.attn_q.weight");
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  constexpr uint64_t kRow = 1024, kRows = 64;
  std::vector<uint8_t> bytes(row_bytes(type, kRow));
  std::vector<float> values(kRow);
  double sum = 0, squares = 0, largest = 0;
  for (uint64_t row = 0; row < kRows; ++row) {
    rows->fill(row, kRow, bytes.data());
    dequantize_row(type, bytes.data(), kRow, values.data());
    for (const float v : values) {
      EXPECT_TRUE(std::isfinite(v));
      sum += v;
      squares += static_cast<double>(v) * v;
      largest = std::max(largest, std::fabs(static_cast<double>(v)));
    }
  }
  constexpr double kN = kRow * kRows;
  return {sum / kN, std::sqrt(squares / kN - sum / kN * sum / kN), largest};
}

TEST(SynthRows, OfEveryTypeHaveTheWantedSpread) {
  size_t n_types = 0, n_tested = 0;
  const DTypeTraits* table = dtype_table(&n_types);
  for (size_t i = 0; i < n_types; ++i) {
    if (!table[i].is_weight || !can_synthesize(table[i].type)) continue;
    const Moments m = moments_of(table[i].type, 0.0f, 0.03f);
    // MXFP4 has powers of two for scales.
    const double tolerance = table[i].type == DType::kMXFP4 ? 0.4 : 0.1;
    EXPECT_NEAR(m.std_dev, 0.03, 0.03 * tolerance) << table[i].name;
    // Formats whose codes are not symmetric lean by half a step.
    EXPECT_NEAR(m.mean, 0.0, 0.03 * 0.5) << table[i].name;
    EXPECT_LT(m.largest, 0.03 * 8) << table[i].name;
    ++n_tested;
  }
  EXPECT_GE(n_tested, 26u);
}

TEST(SynthRows, KeepMeanAndSignOfFloats) {
  const Moments norm = moments_of(DType::kF32, 1.0f, 0.1f);
  EXPECT_NEAR(norm.mean, 1.0, 0.005);
  EXPECT_NEAR(norm.std_dev, 0.1, 0.005);
  const Moments decay = moments_of(DType::kF32, -1.0f, 0.5f);
  EXPECT_LT(decay.largest, 1.87);
}

TEST(SynthRows, DependOnSeedTensorAndRowOnly) {
  const auto row_of = [](uint64_t seed, std::string_view name, uint64_t row) {
    const auto rows = RandomRows::create(DType::kQ4_K, 0, 0.03f, seed, name);
    std::vector<uint8_t> bytes(row_bytes(DType::kQ4_K, 512));
    rows->fill(row, 512, bytes.data());
    return bytes;
  };
  EXPECT_EQ(row_of(1, "a", 7), row_of(1, "a", 7));
  EXPECT_NE(row_of(1, "a", 7), row_of(1, "a", 8));
  EXPECT_NE(row_of(1, "a", 7), row_of(1, "b", 7));
  EXPECT_NE(row_of(1, "a", 7), row_of(2, "a", 7));
}

// A file that is removed when the test ends.
struct TemporaryPath {
  std::string path = testing::TempDir() + "okibi_synth_" + std::to_string(getpid()) + ".gguf";
  ~TemporaryPath() { std::filesystem::remove(path); }
};

// One layer, 640 tokens: small enough to write in a test, with every kind of storage.
SynthPlan small_plan() {
  synth::FlashNextShape shape = {.base = {.n_layers = 4,
                                          .d_model = 256,
                                          .n_heads = 2,
                                          .n_kv_heads = 1,
                                          .n_ctx = 4096,
                                          .n_vocab = 640,
                                          .delta_key_heads = 1,
                                          .delta_value_heads = 3},
                                 .n_experts = 2,
                                 .n_experts_used = 1,
                                 .low_rank = 32,
                                 .ngram_vocab_base = 10,
                                 .tiny_vocabulary = true};
  return synth::plan_flash_next(shape);
}

TEST(SynthFiles, ReadBackWithEveryKeyTensorAndFiniteValue) {
  const TemporaryPath file;
  const SynthPlan plan = small_plan();
  const auto summary = write_synth(plan, file.path, {.type = DType::kQ4_K, .seed = 3});
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->n_parameters, plan.n_parameters());

  const auto read = gguf::File::open(file.path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->warnings().empty());
  ASSERT_EQ(read->tensors().size(), plan.tensors.size());
  for (const auto& [key, value] : plan.keys) EXPECT_TRUE(read->has(key)) << key;
  EXPECT_EQ(read->get_u32("qwen4exp.block_count").value(), 4u);
  EXPECT_EQ(read->get_bools("qwen4exp.attention.recurrent_layers").value(),
            (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(read->get_u32("general.file_type").value(), 14u);

  std::vector<float> values;
  for (const SynthTensor& tensor : plan.tensors) {
    const gguf::TensorInfo* info = read->find_tensor(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->ne, tensor.ne) << tensor.name;
    EXPECT_EQ(info->type, synth_tensor_type(tensor, DType::kQ4_K)) << tensor.name;
    values.resize(info->n_elements());
    // Rows follow each other without gaps, so a tensor can be read as one.
    dequantize_row(info->type, read->data(*info).data(), static_cast<int64_t>(values.size()),
                   values.data());
    for (const float v : values) ASSERT_TRUE(std::isfinite(v)) << tensor.name;
    for (const float v : values) ASSERT_LT(std::fabs(v), 3.0f) << tensor.name;
  }
}

TEST(SynthFiles, OfTypesWithoutAQuantiserAreSoundAndOfTheRightSize) {
  const SynthPlan plan = small_plan();
  for (const char* name : {"iq3_xxs", "IQ3_S", "iq2_xs", "iq2_xxs", "Iq2_S", "iq4_xs", "iq1_m"}) {
    SCOPED_TRACE(name);
    const auto type = dtype_from_name(name);
    ASSERT_TRUE(type.has_value());
    const TemporaryPath file;
    ASSERT_TRUE(write_synth(plan, file.path, {.type = *type, .seed = 3}).ok());
    const auto read = gguf::File::open(file.path);
    ASSERT_TRUE(read.ok()) << read.status().message();
    std::vector<float> values;
    for (const SynthTensor& tensor : plan.tensors) {
      const gguf::TensorInfo* info = read->find_tensor(tensor.name);
      ASSERT_NE(info, nullptr) << tensor.name;
      ASSERT_TRUE(gguf::check_tensor_data(*read, *info).ok()) << tensor.name;
      if (tensor.storage != SynthStorage::kMatrix) continue;
      // As published files do: rows that no super-block divides are IQ4_NL.
      const DType stored = tensor.ne[0] % 256 == 0  ? *type
                           : tensor.ne[0] % 32 == 0 ? DType::kIQ4_NL
                                                    : DType::kF16;
      EXPECT_EQ(info->type, stored) << tensor.name;
      if (info->n_elements() < 8192) continue;
      values.resize(info->n_elements());
      dequantize_row(info->type, read->data(*info).data(), static_cast<int64_t>(values.size()),
                     values.data());
      double squares = 0;
      for (const float v : values) squares += static_cast<double>(v) * v;
      const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
      const double wanted = 1 / std::sqrt(static_cast<double>(tensor.ne[0]));
      EXPECT_NEAR(deviation, wanted, 0.15 * wanted) << tensor.name;
    }
  }
}

TEST(SynthFiles, WithoutDataHaveTheSameDirectoryAndReadAsZero) {
  const TemporaryPath file;
  const SynthPlan plan = small_plan();
  ASSERT_TRUE(write_synth(plan, file.path, {.type = DType::kQ8_0, .with_data = false}).ok());
  const auto read = gguf::File::open(file.path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->tensors().size(), plan.tensors.size());
  for (const gguf::TensorInfo& info : read->tensors()) {
    for (const uint8_t byte : read->data(info)) ASSERT_EQ(byte, 0) << info.name;
  }
}

TEST(SynthFiles, ChatInTheLayoutOfTheirModel) {
  const std::pair<const char*, tokenizer::ChatLayout> expected[] = {
      {"smollm2-135m", tokenizer::ChatLayout::kSmolLm2},
      {"lfm2-350m", tokenizer::ChatLayout::kLfm2},
      {"lfm2.5-vl-450m", tokenizer::ChatLayout::kLfm25},
      {"flash-next-mini", tokenizer::ChatLayout::kQwen38},
  };
  for (const auto& [name, layout] : expected) {
    const TemporaryPath path;
    ASSERT_TRUE(write_synth(shape_of(name).text, path.path, {.with_data = false}).ok());
    const auto file = gguf::File::open(path.path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto data = read_vocabulary(*file);
    ASSERT_TRUE(data.ok()) << data.status().message();
    const auto tokenizer = tokenizer::Tokenizer::create(std::move(data).value());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_TRUE((*tokenizer)->warnings().empty()) << name << (*tokenizer)->warnings()[0];
    const auto found = tokenizer::recognize_chat_layout(**tokenizer);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status().message();
    EXPECT_EQ(*found, layout) << name;

    const std::string text = "Embers, kept alive: 12 of them\n\xc3\xa9\xe7\x86\xbe";
    const auto ids = (*tokenizer)->encode(text, {.add_special = false});
    ASSERT_TRUE(ids.ok());
    EXPECT_LT(ids->size(), text.size()) << name;
    EXPECT_EQ((*tokenizer)->decode(*ids), text) << name;
  }
}

TEST(SynthRows, RefuseATypeThatCannotBeMadeInWords) {
  const auto rows = RandomRows::create(DType::kNVFP4, 0, 1, 1, "a");
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.status().message().find("NVFP4"), std::string::npos);
}

}  // namespace
}  // namespace okibi::model
