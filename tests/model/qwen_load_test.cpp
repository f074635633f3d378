// What the loaders of qwen35 and qwen4exp refuse, in words that name the key or tensor, what was
// found and what was expected; and the variants of files that they accept.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "edited_model.h"
#include "okibi/engine.h"
#include "okibi/session.h"

namespace okibi::test {
namespace {

const std::string kFlashNext = OKIBI_GOLDEN_DIR "/qwen4exp-tiny/qwen4exp-tiny-f32.gguf";
const std::string kDense = OKIBI_GOLDEN_DIR "/qwen35-tiny/qwen35-tiny-f32.gguf";

using Edit = std::function<void(EditedModel&)>;

Result<std::shared_ptr<Engine>> open_edited(const std::string& path, const Edit& edit) {
  EditedModel model(path);
  edit(model);
  return Engine::open({.model_path = model.write(),
                       .cpu_level = "",
                       .n_threads = 1,
                       .n_ctx = 256,
                       .n_sessions = 1,
                       .kv_type = KvCacheType::kF32});
}

// Every one of `parts` stands in the message.
void expect_refused(const std::string& path, const Edit& edit,
                    const std::vector<std::string>& parts) {
  const auto engine = open_edited(path, edit);
  ASSERT_FALSE(engine.ok()) << "loaded, expected an error with: " << parts[0];
  const std::string message(engine.status().message());
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "\"" << part << "\" not in: " << message;
  }
}

// Logits of all positions of a prompt that crosses the budget.
std::vector<float> all_logits(const Result<std::shared_ptr<Engine>>& engine) {
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  std::vector<float> all;
  if (!engine.ok()) return all;
  std::vector<TokenId> tokens;
  for (int i = 0; i < 60; ++i) tokens.push_back((i * 37 + i * i) % 640);
  auto session = (*engine)->new_session();
  EXPECT_TRUE(session.ok());
  AppendOptions options;
  options.on_logits = [&](size_t, std::span<const float> row) {
    all.insert(all.end(), row.begin(), row.end());
  };
  const Status status = (*session)->append(tokens, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

std::vector<float> original_logits(const std::string& path) {
  return all_logits(open_edited(path, [](EditedModel&) {}));
}
void expect_same_logits(const std::string& path, const Edit& edit) {
  EXPECT_EQ(all_logits(open_edited(path, edit)), original_logits(path));
}

Edit without(const std::string& key) {
  return [key](EditedModel& m) { m.keys().remove(key); };
}
Edit with(const std::string& key, uint32_t value) {
  return [key, value](EditedModel& m) { m.keys().set_u32(key, value); };
}
Edit with_ints(const std::string& key, const std::vector<int32_t>& values) {
  return [key, values](EditedModel& m) { m.keys().set_i32s(key, values); };
}
Edit with_u64s(const std::string& key, const std::vector<uint64_t>& values) {
  return [key, values](EditedModel& m) { m.keys().set_u64s(key, values); };
}

const char* const kCommonKeys[] = {
    "block_count",
    "embedding_length",
    "context_length",
    "attention.layer_norm_rms_epsilon",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.dimension_sections",
    "ssm.group_count",
    "ssm.time_step_rank",
    "ssm.state_size",
    "ssm.inner_size",
    "ssm.conv_kernel",
};
const char* const kFlashNextKeys[] = {
    "expert_count",
    "expert_used_count",
    "hyper_connection.count",
    "hyper_connection.low_rank",
    "attention.indexer.head_count",
    "attention.indexer.key_length",
    "attention.indexer.top_k",
    "ple.ngram_size",
    "ple.heads_per_ngram",
    "ple.conv_kernel",
    "ple.eos_token_id",
    "embedding_length_per_layer_input",
    "ple.layer_multipliers",
    "ple.head_vocab_sizes",
    "ple.head_offsets",
};
// Without these another key would have to stand in, and the file has none that can.
const char* const kFlashNextWidths[] = {"expert_feed_forward_length",
                                        "expert_shared_feed_forward_length"};

TEST(QwenLoad, EveryRequiredKeyMissingIsNamed) {
  for (const char* key : kCommonKeys) {
    expect_refused(kDense, without("qwen35." + std::string(key)), {"qwen35." + std::string(key)});
    expect_refused(kFlashNext, without("qwen4exp." + std::string(key)),
                   {"qwen4exp." + std::string(key)});
  }
  expect_refused(kDense, without("qwen35.feed_forward_length"), {"qwen35.feed_forward_length"});
  for (const char* key : kFlashNextKeys) {
    expect_refused(kFlashNext, without("qwen4exp." + std::string(key)),
                   {"qwen4exp." + std::string(key)});
  }
  for (const char* key : kFlashNextWidths) {
    expect_refused(kFlashNext, without("qwen4exp." + std::string(key)),
                   {"qwen4exp." + std::string(key), "missing"});
  }
}

TEST(QwenLoad, SizesOfZeroAreRefused) {
  for (const char* key : kCommonKeys) {
    const std::string name = key;
    if (name.find("epsilon") != std::string::npos || name == "rope.freq_base" ||
        name == "rope.dimension_sections") {
      continue;  // not integers
    }
    expect_refused(kDense, with("qwen35." + name, 0), {"qwen35." + name});
    expect_refused(kFlashNext, with("qwen4exp." + name, 0), {"qwen4exp." + name});
  }
  for (const char* key : kFlashNextKeys) {
    const std::string name = "qwen4exp." + std::string(key);
    if (name == "qwen4exp.ple.eos_token_id") continue;  // id 0 is a token
    expect_refused(kFlashNext, with(name, 0), {name, "found "});
  }
  for (const char* key : kFlashNextWidths) {
    expect_refused(kFlashNext, with("qwen4exp." + std::string(key), 0), {key, "found 0"});
  }
  for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
    const std::string name = "qwen4exp." + std::string(key);
    expect_refused(kFlashNext, [&](EditedModel& m) { m.keys().set_f32(name, 0.0f); },
                   {name, "found 0", "expected"});
  }
}

// Sizes that no kernel takes must be refused by the loader, not by a check while running; the
// file's tensors would fit them.
TEST(QwenLoad, SizesOverWhatKernelsTakeAreRefused) {
  const std::string p = "qwen4exp.";
  expect_refused(kFlashNext, with(p + "hyper_connection.count", 17),
                 {p + "hyper_connection.count", "found 17", "expected 2 to 16"});
  expect_refused(kFlashNext, with(p + "ssm.state_size", 272),
                 {p + "ssm.state_size", "found 272", "expected 1 to 256"});
  expect_refused(kFlashNext,
                 [&](EditedModel& m) {
                   m.keys().set_u32(p + "expert_count", 65);
                   m.keys().set_u32(p + "expert_used_count", 65);
                 },
                 {p + "expert_used_count", "found 65", "expected 1 to 64"});
  for (uint32_t dim : {8u, 24u, 528u}) {
    expect_refused(
        kFlashNext, with(p + "attention.indexer.key_length", dim),
        {p + "attention.indexer.key_length", "found " + std::to_string(dim), "a multiple of 16"});
  }
  expect_refused(kFlashNext, with(p + "ssm.conv_kernel", 17), {p + "ssm.conv_kernel", "found 17"});
  expect_refused(kFlashNext, with(p + "ple.conv_kernel", 17), {p + "ple.conv_kernel", "found 17"});
  expect_refused(kFlashNext, with(p + "ple.ngram_size", 9), {p + "ple.ngram_size", "found 9"});
}

TEST(QwenLoad, HeadsThatDoNotDivideAreRefused) {
  for (const auto& [path, p] : {std::pair{kDense, std::string("qwen35.")},
                                std::pair{kFlashNext, std::string("qwen4exp.")}}) {
    expect_refused(path, with(p + "ssm.group_count", 3),
                   {p + "ssm.time_step_rank", "found 4", "3 key heads"});
    expect_refused(path, with(p + "ssm.inner_size", 65),
                   {p + "ssm.inner_size", "found 65", "expected 4 heads of 16 values (64)"});
    expect_refused(path, with(p + "attention.head_count_kv", 3),
                   {p + "attention.head_count", "4 query heads", "3 K/V heads"});
  }
}

TEST(QwenLoad, RopeSectionsMustCoverTheRotatedPairs) {
  const std::string key = "qwen4exp.rope.dimension_sections";
  for (const std::vector<int32_t>& bad : std::vector<std::vector<int32_t>>{
           {2, 1, 1, 1}, {2, 2}, {4}, {5, -1, 0, 0}, {1, 1, 1, 0, 1}}) {
    expect_refused(kFlashNext, with_ints(key, bad), {key, "found [", "add up to 4"});
  }
  expect_refused(kFlashNext, with("qwen4exp.rope.dimension_count", 7),
                 {"qwen4exp.rope.dimension_count", "found 7", "even"});
  expect_refused(kFlashNext, with("qwen4exp.rope.dimension_count", 34),
                 {"qwen4exp.rope.dimension_count", "found 34", "32"});
  expect_same_logits(kFlashNext, with_ints(key, {2, 1, 1}));
}

TEST(QwenLoad, TheMapOfRecurrentLayersMustCoverTheLayers) {
  for (const auto& [path, p] : {std::pair{kDense, std::string("qwen35.")},
                                std::pair{kFlashNext, std::string("qwen4exp.")}}) {
    const std::string key = p + "attention.recurrent_layers";
    expect_refused(path,
                   [&](EditedModel& m) {
                     const bool flags[] = {true, true, true, false, true, true, true};
                     m.keys().set_bools(key, flags);
                   },
                   {key, "found 7 entries", "8"});
    // One flag for all: layer 3 would be recurrent, and its tensors are not.
    if (path == kDense) {
      expect_refused(path, [&](EditedModel& m) { m.keys().set_bool(key, true); },
                     {"the tensor blk.3.attn_qkv.weight is missing"});
    }
    expect_same_logits(path, without(key));  // the period says the same
    expect_refused(path,
                   [&](EditedModel& m) {
                     m.keys().remove(key);
                     m.keys().set_u32(p + "full_attention_interval", 0);
                   },
                   {p + "full_attention_interval", "found 0"});
    expect_same_logits(path, [&](EditedModel& m) {
      m.keys().remove(key);
      m.keys().remove(p + "full_attention_interval");
    });
  }
}

TEST(QwenLoad, BlocksAndBudgetMustAgree) {
  const std::string ratios = "qwen4exp.attention.compress_ratios";
  const std::string budget = "qwen4exp.attention.indexer.top_k";
  expect_refused(kFlashNext, with_ints(ratios, {0, 0, 0, 4, 0, 0, 0}),
                 {ratios, "found 7 entries", "expected one per layer (8)"});
  expect_refused(kFlashNext, with_ints(ratios, {0, 0, 0, 4, 0, 0, 0, 8}),
                 {ratios, "layer 7 has 8", "4"});
  expect_refused(kFlashNext, with_ints(ratios, {0, 0, 0, 4, 0, 0, 0, 0}),
                 {ratios, "layer 7 has 0"});
  expect_refused(kFlashNext, with_ints(ratios, {0, 4, 0, 4, 0, 0, 0, 4}),
                 {ratios, "layer 1", "has 4", "expected 0"});
  for (int32_t bad : {1, 3, 128, -4}) {
    expect_refused(kFlashNext, with_ints(ratios, {0, 0, 0, bad, 0, 0, 0, bad}),
                   {ratios, "layer 3 has " + std::to_string(bad), "expected 0"});
  }
  for (uint32_t bad : {30u, 3u}) {
    expect_refused(kFlashNext, with(budget, bad),
                   {budget, "found " + std::to_string(bad), "multiple of the block's 4"});
  }
}

TEST(QwenLoad, ExpertsMustAgree) {
  const std::string p = "qwen4exp.";
  expect_refused(kFlashNext, with(p + "expert_used_count", 9),
                 {p + "expert_used_count", "found 9", "1 to 8"});
  expect_refused(kFlashNext, with(p + "expert_count", 4),
                 {"blk.0.ffn_gate_inp.weight", "expected rows of 64 values and 4", "(64, 8)"});
  expect_refused(kFlashNext,
                 with_ints(p + "expert_feed_forward_length", {32, 32, 32, 32, 32, 32, 32, 16}),
                 {p + "expert_feed_forward_length", "layer 7 has 16", "32"});
  expect_refused(kFlashNext, with_ints(p + "expert_feed_forward_length", {32, 32}),
                 {p + "expert_feed_forward_length", "found 2 entries", "8"});
  // Absent widths follow from feed_forward_length.
  expect_same_logits(kFlashNext, [&](EditedModel& m) {
    m.keys().remove(p + "expert_feed_forward_length");
    m.keys().set_u32(p + "feed_forward_length", 64);
  });
  expect_same_logits(kFlashNext, [&](EditedModel& m) {
    m.keys().remove(p + "expert_shared_feed_forward_length");
    m.keys().set_u32(p + "feed_forward_length", 32);
  });
  expect_same_logits(kFlashNext,
                     with_ints(p + "expert_feed_forward_length", std::vector<int32_t>(8, 32)));
}

TEST(QwenLoad, NgramKeysMustAgree) {
  const std::string p = "qwen4exp.ple.";
  for (int32_t bad : {8, -1, 1000}) {
    expect_refused(kFlashNext, with_ints(p + "layers", {bad}),
                   {p + "layers", "found " + std::to_string(bad), "0 to 7"});
  }
  expect_refused(kFlashNext, with_ints(p + "layers", {3}), {p + "layers", "found 3", "recurrent"});
  expect_refused(kFlashNext, with_ints(p + "layers", {1, 2}),
                 {p + "layers", "found 2 entries", "at most one"});
  expect_refused(kFlashNext, with_u64s(p + "layer_multipliers", {1, 3}),
                 {p + "layer_multipliers", "found 2 entries", "expected 3"});
  expect_refused(kFlashNext, with_u64s(p + "head_vocab_sizes", {503, 509}),
                 {p + "head_vocab_sizes", "found 2 entries", "8 heads"});
  expect_refused(kFlashNext, with_u64s(p + "head_offsets", std::vector<uint64_t>(9, 0)),
                 {p + "head_offsets", "found 9 entries", "8 heads"});
  expect_refused(kFlashNext,
                 with_u64s(p + "head_vocab_sizes", {503, 509, 0, 523, 541, 547, 557, 563}),
                 {p + "head_vocab_sizes", "head 2 has 0 rows", "at least 1"});
  expect_refused(kFlashNext,
                 with_u64s(p + "head_vocab_sizes", {503, 509, 521, 523, 541, 547, 557, 572}),
                 {"per_layer_token_embd.weight", "at least 4273", "(8, 4272)"});
  for (uint64_t bad : {uint64_t{1} << 31, uint64_t{1} << 32, ~uint64_t{0}, ~uint64_t{0} - 502}) {
    expect_refused(kFlashNext,
                   with_u64s(p + "head_offsets", {bad, 503, 1012, 1533, 2056, 2597, 3144, 3701}),
                   {p + "head_", "head 0", "2147483647"});
  }
  expect_refused(kFlashNext, with(p + "eos_token_id", 640),
                 {p + "eos_token_id", "found 640", "0 to 639"});
  expect_refused(kFlashNext, with(p + "image_token_id", 640),
                 {p + "image_token_id", "found 640", "0 to 639"});
  expect_refused(kFlashNext, with("qwen4exp.embedding_length_per_layer_input", 64),
                 {"per_layer_token_embd.weight", "rows of 64 values", "(8, 4272)"});
}

TEST(QwenLoad, TheTableMayBeSplitByHeadsAndMustBeComplete) {
  const auto split = [](EditedModel& m) {
    const EditedModel::Tensor joined = m.tensor("per_layer_token_embd.weight");
    m.drop(joined.name);
    const auto sizes = *m.original().get_u64s("qwen4exp.ple.head_vocab_sizes");
    const auto offsets = *m.original().get_u64s("qwen4exp.ple.head_offsets");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto first = joined.bytes.begin() + static_cast<std::ptrdiff_t>(offsets[i] * 32);
      m.tensors.push_back({"ple_ngram_embd." + std::to_string(i) + ".weight",
                           DType::kF32,
                           {8, sizes[i]},
                           {first, first + static_cast<std::ptrdiff_t>(sizes[i] * 32)}});
    }
  };
  expect_same_logits(kFlashNext, split);
  expect_refused(kFlashNext, [](EditedModel& m) { m.drop("per_layer_token_embd.weight"); },
                 {"per_layer_token_embd.weight", "missing"});
  for (int head : {0, 5, 7}) {
    const std::string name = "ple_ngram_embd." + std::to_string(head) + ".weight";
    expect_refused(kFlashNext,
                   [&](EditedModel& m) {
                     split(m);
                     m.drop(name);
                   },
                   {name, "missing", "8 heads"});
  }
  expect_refused(kFlashNext,
                 [&](EditedModel& m) {
                   split(m);
                   EditedModel::Tensor& t = m.tensor("ple_ngram_embd.2.weight");
                   t.ne[1] -= 1;
                   t.bytes.resize(t.bytes.size() - 32);
                 },
                 {"ple_ngram_embd.2.weight", "at least 521", "(8, 520)"});
}

// Each tensor of the trunk missing, and each with one row less.
TEST(QwenLoad, EveryTensorMissingOrCutIsNamed) {
  for (const std::string& path : {kDense, kFlashNext}) {
    const EditedModel original(path);
    for (const EditedModel::Tensor& t : original.tensors) {
      // One layer of each kind is enough; output.weight may be absent.
      const bool is_layer = t.name.starts_with("blk.");
      if (is_layer && t.name[4] != '1' && t.name[4] != '3') continue;
      const std::string name = t.name;
      if (name != "output.weight") {
        expect_refused(path, [&](EditedModel& m) { m.drop(name); }, {name, "missing"});
      }
      // The one says how large the vocabulary is, the other has rows to spare.
      if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") continue;
      expect_refused(path,
                     [&](EditedModel& m) {
                       EditedModel::Tensor& cut = m.tensor(name);
                       const size_t n_rows = cut.ne.back();
                       cut.bytes.resize(cut.bytes.size() / n_rows * (n_rows > 1 ? n_rows - 1 : 2));
                       cut.ne.back() = n_rows > 1 ? n_rows - 1 : 2;
                       if (n_rows == 1) std::fill(cut.bytes.begin(), cut.bytes.end(), uint8_t{0});
                     },
                     {name, "expected", "has"});
    }
  }
}

TEST(QwenLoad, WithoutRatiosAttentionIsDense) {
  const auto engine = open_edited(kFlashNext, without("qwen4exp.attention.compress_ratios"));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->info().n_sparse_layers, 0u);
  const std::vector<float> dense = all_logits(engine), sparse = original_logits(kFlashNext);
  // Selection leaves nothing out up to the budget of 32 and 3 open positions.
  const auto border = static_cast<std::ptrdiff_t>(35 * 640);
  EXPECT_TRUE(std::equal(dense.begin(), dense.begin() + border, sparse.begin()));
  EXPECT_NE(dense, sparse);
  EXPECT_EQ(dense,
            all_logits(open_edited(kFlashNext, with_ints("qwen4exp.attention.compress_ratios",
                                                         std::vector<int32_t>(8, 0)))));
}

TEST(QwenLoad, WithoutAnNgramLayerItsKeysAndTensorsAreNotNeeded) {
  const auto bare = [](EditedModel& m) {
    m.drop("per_layer_token_embd.weight");
    std::erase_if(m.tensors, [](const EditedModel::Tensor& t) {
      return t.name.find(".ple_") != std::string::npos;
    });
    for (const char* key : kFlashNextKeys) {
      const std::string name = key;
      if (name.starts_with("ple.") || name == "embedding_length_per_layer_input") {
        m.keys().remove("qwen4exp." + name);
      }
    }
    m.keys().remove("qwen4exp.ple.layers");
  };
  const std::vector<float> logits = all_logits(open_edited(kFlashNext, bare));
  EXPECT_NE(logits, original_logits(kFlashNext));
  EXPECT_EQ(logits, all_logits(open_edited(kFlashNext, without("qwen4exp.ple.layers"))));
}

// Gate and up rows of each expert behind each other, gate first.
TEST(QwenLoad, FusedExpertsGiveTheSameLogits) {
  expect_same_logits(kFlashNext, [](EditedModel& m) {
    for (int layer = 0; layer < 8; ++layer) {
      const std::string p = "blk." + std::to_string(layer) + ".ffn_";
      const EditedModel::Tensor gate = m.tensor(p + "gate_exps.weight");
      const EditedModel::Tensor up = m.tensor(p + "up_exps.weight");
      const size_t n = gate.bytes.size() / 8;  // of one expert
      EditedModel::Tensor fused = {p + "gate_up_exps.weight", DType::kF32, {64, 64, 8}, {}};
      for (size_t e = 0; e < 8; ++e) {
        for (const EditedModel::Tensor* part : {&gate, &up}) {
          const auto first = part->bytes.begin() + static_cast<std::ptrdiff_t>(e * n);
          fused.bytes.insert(fused.bytes.end(), first, first + static_cast<std::ptrdiff_t>(n));
        }
      }
      m.drop(gate.name);
      m.drop(up.name);
      m.tensors.push_back(fused);
    }
  });
}

TEST(QwenLoad, TheSharedGateMayBeARowOrAMatrix) {
  expect_same_logits(kFlashNext, [](EditedModel& m) {
    for (int layer = 0; layer < 8; ++layer) {
      m.tensor("blk." + std::to_string(layer) + ".ffn_gate_inp_shexp.weight").ne = {64};
    }
  });
}

void add_next_token_block(EditedModel& m, int from) {
  m.copy_block(from, 8);
  m.keys().set_u32("qwen4exp.block_count", 9);
  m.keys().set_u32("qwen4exp.nextn_predict_layers", 1);
  const int32_t ratios[] = {0, 0, 0, 4, 0, 0, 0, 4, 4};
  m.keys().set_i32s("qwen4exp.attention.compress_ratios", ratios);
  const bool flags[] = {true, true, true, false, true, true, true, false, false};
  m.keys().set_bools("qwen4exp.attention.recurrent_layers", flags);
  m.add_floats("blk.8.nextn.enorm.weight", {64}, 1);
  m.add_floats("blk.8.nextn.hnorm.weight", {256}, 1);
  m.add_floats("blk.8.nextn.eh_proj.weight", {128, 64}, 0.1f);
  m.add_floats("blk.8.nextn.hc_head_norm.weight", {256}, 1);
  m.add_floats("blk.8.nextn.hc_head_down.weight", {256, 16}, 0.1f);
  m.add_floats("blk.8.nextn.hc_head_up.weight", {16, 256}, 0.1f);
}

TEST(QwenLoad, ABlockThatPredictsFurtherTokensIsCheckedAndSkipped) {
  expect_same_logits(kFlashNext, [](EditedModel& m) { add_next_token_block(m, 3); });
  const auto engine = open_edited(kFlashNext, [](EditedModel& m) { add_next_token_block(m, 3); });
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->info().n_layers, 8u);
  // Maps of the trunk alone, a trunk that still counts the block.
  expect_same_logits(kFlashNext, [](EditedModel& m) {
    add_next_token_block(m, 3);
    const bool flags[] = {true, true, true, false, true, true, true, false};
    m.keys().set_bools("qwen4exp.attention.recurrent_layers", flags);
    m.drop_block(8);
  });
  expect_refused(kFlashNext,
                 [](EditedModel& m) {
                   add_next_token_block(m, 3);
                   m.drop("blk.8.nextn.hnorm.weight");
                   m.add_floats("blk.8.nextn.hnorm.weight", {64}, 1);
                 },
                 {"blk.8.nextn.hnorm.weight", "256", "(64)"});
  // Four gammas as rows are the same gammas.
  expect_same_logits(kFlashNext, [](EditedModel& m) {
    add_next_token_block(m, 3);
    m.tensor("blk.8.nextn.hc_head_norm.weight").ne = {64, 4};
    m.tensor("blk.8.nextn.hnorm.weight").ne = {64, 4};
  });
  expect_refused(kFlashNext, with("qwen4exp.nextn_predict_layers", 8),
                 {"qwen4exp.nextn_predict_layers", "found 8", "0 to 7"});
  // qwen35 skips such a block too.
  expect_same_logits(kDense, [](EditedModel& m) {
    m.copy_block(3, 8);
    m.keys().set_u32("qwen35.block_count", 9);
    m.keys().set_u32("qwen35.nextn_predict_layers", 1);
  });
}

TEST(QwenLoad, ScalesAreHonoured) {
  const auto with_f32 = [](const std::string& key, float value) {
    return Edit([key, value](EditedModel& m) { m.keys().set_f32(key, value); });
  };
  const auto scaled = [](const char* stem, float factor) {
    return Edit([stem, factor](EditedModel& m) {
      for (EditedModel::Tensor& t : m.tensors) {
        if (t.name.find(stem) == std::string::npos) continue;
        auto* values = reinterpret_cast<float*>(t.bytes.data());
        for (size_t i = 0; i < t.bytes.size() / sizeof(float); ++i) values[i] *= factor;
      }
    });
  };
  for (const auto& [path, p] : {std::pair{kDense, std::string("qwen35.")},
                                std::pair{kFlashNext, std::string("qwen4exp.")}}) {
    const std::vector<float> original = original_logits(path);
    const std::string key = p + "attention.scale";
    EXPECT_EQ(all_logits(open_edited(path, with_f32(key, 0.0f))), original);
    EXPECT_EQ(all_logits(open_edited(path, with_f32(key, 0.17677669529663687f))), original);
    const std::vector<float> half =
        all_logits(open_edited(path, with_f32(key, 0.08838834764831845f)));
    EXPECT_NE(half, original);
    // Half the scale is half of every query's norm.
    EXPECT_EQ(half, all_logits(open_edited(path, scaled(".attn_q_norm.", 0.5f))));
    expect_refused(path, with_f32(key, std::numeric_limits<float>::infinity()), {key, "inf"});
  }
  const std::string key = "qwen4exp.expert_weights_scale";
  const std::vector<float> original = original_logits(kFlashNext);
  EXPECT_EQ(all_logits(open_edited(kFlashNext, with_f32(key, 0.0f))), original);
  EXPECT_EQ(all_logits(open_edited(kFlashNext, with_f32(key, 1.0f))), original);
  const std::vector<float> twice = all_logits(open_edited(kFlashNext, with_f32(key, 2.0f)));
  EXPECT_NE(twice, original);
  EXPECT_EQ(twice, all_logits(open_edited(kFlashNext, scaled(".ffn_down_exps.", 2.0f))));
}

// Models of one kind of layer only.
TEST(QwenLoad, AllLayersMayBeOfOneKind) {
  for (const auto& [path, p] : {std::pair{kDense, std::string("qwen35.")},
                                std::pair{kFlashNext, std::string("qwen4exp.")}}) {
    const auto recurrent = open_edited(path, [&](EditedModel& m) {
      for (int layer : {3, 7}) {
        m.drop_block(layer);
        m.copy_block(2, layer);
      }
      m.keys().set_bool(p + "attention.recurrent_layers", true);
      if (path == kFlashNext) m.keys().remove(p + "attention.compress_ratios");
    });
    EXPECT_EQ(all_logits(recurrent).size(), 60u * 640u);
    const auto attending = open_edited(path, [&](EditedModel& m) {
      for (int layer : {0, 1, 2, 4, 5, 6}) {
        m.drop_block(layer);
        m.copy_block(3, layer);
      }
      m.keys().set_bool(p + "attention.recurrent_layers", false);
      if (path == kFlashNext) {
        m.keys().set_i32s(p + "attention.compress_ratios", std::vector<int32_t>(8, 4));
        m.keys().remove(p + "ple.layers");
      }
    });
    EXPECT_EQ(all_logits(attending).size(), 60u * 640u);
  }
}

}  // namespace
}  // namespace okibi::test
