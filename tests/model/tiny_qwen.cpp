// The hybrid Qwen families as tiny models.
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <numeric>

#include "tiny_tensors.h"

namespace okibi::test {
namespace {

constexpr uint64_t kWidth = 256, kFf = 512, kTaps = 4;
constexpr uint64_t kHeads = 4, kKvHeads = 2, kHeadDim = 64, kRotated = 16;
constexpr uint64_t kKeyHeads = 2, kValueHeads = 4, kDeltaDim = 64;
constexpr uint64_t kStreams = 4, kLowRank = 32, kExperts = 4, kExpertsUsed = 2, kExpertFf = 256;
constexpr uint64_t kIndexHeads = 2, kIndexDim = 32, kBudget = 32, kBlock = 4;
constexpr uint64_t kNgramSize = 3, kNgramHeads = 4, kNgramRow = 32, kNgramLayer = 1;
constexpr uint64_t kNgramVocab[] = {101, 103, 107, 109, 113, 127, 131, 137};
constexpr bool kIsRecurrent[] = {true, true, false, true, false};
constexpr uint64_t kLayers = std::size(kIsRecurrent);

class TensorList {
 public:
  explicit TensorList(DType type) : type_(type) {}

  // Rows that the type's blocks do not divide are Q8_0, as real files have them.
  void matrix(const std::string& name, std::vector<uint64_t> ne) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(ne[0]));
    const bool divides = ne[0] % traits_of(type_).block_size == 0;
    list.push_back(
        {name + ".weight", divides ? type_ : DType::kQ8_0, std::move(ne), 0.0f, deviation});
  }
  void norm(const std::string& name, uint64_t n) { floats(name + ".weight", {n}, 1.0f, 0.1f); }
  void floats(const std::string& name, std::vector<uint64_t> ne, float mean, float deviation) {
    list.push_back({name, DType::kF32, std::move(ne), mean, deviation});
  }

  std::vector<TinyTensor> list;

 private:
  DType type_;
};

void add_delta_net(TensorList& t, const std::string& p) {
  const uint64_t value = kValueHeads * kDeltaDim;
  const uint64_t channels = 2 * kKeyHeads * kDeltaDim + value;
  t.matrix(p + "attn_qkv", {kWidth, channels});
  t.matrix(p + "attn_gate", {kWidth, value});
  t.floats(p + "ssm_conv1d.weight", {kTaps, channels}, 0.3f, 0.3f);
  t.matrix(p + "ssm_beta", {kWidth, kValueHeads});
  t.matrix(p + "ssm_alpha", {kWidth, kValueHeads});
  t.floats(p + "ssm_dt.bias", {kValueHeads}, 0.0f, 0.5f);
  t.floats(p + "ssm_a", {kValueHeads}, -0.3f, 0.05f);
  t.norm(p + "ssm_norm", kDeltaDim);
  t.matrix(p + "ssm_out", {value, kWidth});
}

void add_attention(TensorList& t, const std::string& p, bool has_index) {
  t.matrix(p + "attn_q", {kWidth, 2 * kHeads * kHeadDim});
  t.matrix(p + "attn_k", {kWidth, kKvHeads * kHeadDim});
  t.matrix(p + "attn_v", {kWidth, kKvHeads * kHeadDim});
  t.matrix(p + "attn_output", {kHeads * kHeadDim, kWidth});
  t.norm(p + "attn_q_norm", kHeadDim);
  t.norm(p + "attn_k_norm", kHeadDim);
  if (!has_index) return;
  t.matrix(p + "indexer.q_proj", {kWidth, kIndexHeads * kIndexDim});
  t.matrix(p + "indexer.k_proj", {kWidth, kIndexDim});
  t.norm(p + "indexer.q_norm", kIndexDim);
  t.norm(p + "indexer.k_norm", kIndexDim);
}

void add_hyper_connection(TensorList& t, const std::string& stem, bool injects) {
  t.norm(stem + "_norm", kStreams * kWidth);
  t.matrix(stem + "_down", {kStreams * kWidth, kLowRank});
  t.matrix(stem + "_up", {kLowRank, kStreams * kWidth});
  if (injects) t.matrix(stem + "_inject", {kStreams * kWidth, kStreams});
}

void add_experts(TensorList& t, const std::string& p) {
  t.floats(p + "ffn_gate_inp.weight", {kWidth, kExperts}, 0.0f, 0.1f);
  t.matrix(p + "ffn_gate_exps", {kWidth, kExpertFf, kExperts});
  t.matrix(p + "ffn_up_exps", {kWidth, kExpertFf, kExperts});
  t.matrix(p + "ffn_down_exps", {kExpertFf, kWidth, kExperts});
  t.floats(p + "ffn_gate_inp_shexp.weight", {kWidth}, 0.0f, 0.1f);
  t.matrix(p + "ffn_gate_shexp", {kWidth, kExpertFf});
  t.matrix(p + "ffn_up_shexp", {kWidth, kExpertFf});
  t.matrix(p + "ffn_down_shexp", {kExpertFf, kWidth});
}

void add_ngram(TensorList& t, const std::string& p) {
  const uint64_t gathered = (kNgramSize - 1) * kNgramHeads * kNgramRow;
  const uint64_t n_rows =
      std::accumulate(std::begin(kNgramVocab), std::end(kNgramVocab), uint64_t{0});
  t.matrix("per_layer_token_embd", {kNgramRow, n_rows});
  t.matrix(p + "ple_key", {gathered, kStreams * kWidth});
  t.matrix(p + "ple_value", {gathered, kWidth});
  for (const char* norm : {"ple_norm_key", "ple_norm_query", "ple_norm_conv"}) {
    t.norm(p + norm, kStreams * kWidth);
  }
  t.floats(p + "ple_conv1d.weight", {kTaps, kStreams * kWidth}, 0.3f, 0.3f);
}

void set_flash_next_keys(gguf::Writer& w, const std::string& p) {
  w.set_u32(p + "expert_count", kExperts);
  w.set_u32(p + "expert_used_count", kExpertsUsed);
  w.set_u32(p + "expert_feed_forward_length", kExpertFf);
  w.set_u32(p + "expert_shared_feed_forward_length", kExpertFf);
  w.set_u32(p + "hyper_connection.count", kStreams);
  w.set_u32(p + "hyper_connection.low_rank", kLowRank);
  w.set_u32(p + "attention.indexer.head_count", kIndexHeads);
  w.set_u32(p + "attention.indexer.key_length", kIndexDim);
  w.set_u32(p + "attention.indexer.top_k", kBudget);
  std::vector<int32_t> ratios;
  for (bool recurrent : kIsRecurrent) ratios.push_back(recurrent ? 0 : kBlock);
  w.set_i32s(p + "attention.compress_ratios", ratios);
  const int32_t layers[] = {kNgramLayer};
  w.set_i32s(p + "ple.layers", layers);
  w.set_u32(p + "ple.ngram_size", kNgramSize);
  w.set_u32(p + "ple.heads_per_ngram", kNgramHeads);
  w.set_u32(p + "ple.conv_kernel", kTaps);
  w.set_u32(p + "ple.eos_token_id", 256);
  w.set_u32(p + "embedding_length_per_layer_input", kNgramRow);
  const uint64_t multipliers[] = {4295158889766209, 8433018892997163, 1270917961435699};
  w.set_u64s(p + "ple.layer_multipliers", multipliers);
  std::vector<uint64_t> offsets;
  uint64_t sum = 0;
  for (uint64_t n : kNgramVocab) {
    offsets.push_back(sum);
    sum += n;
  }
  w.set_u64s(p + "ple.head_vocab_sizes", kNgramVocab);
  w.set_u64s(p + "ple.head_offsets", offsets);
}

}  // namespace

std::vector<TinyTensor> tiny_qwen_tensors(const std::string& arch, DType type, uint64_t n_vocab) {
  const bool is_next = arch == "qwen4exp";
  TensorList t(type);
  t.matrix("token_embd", {kWidth, n_vocab});
  if (is_next) add_hyper_connection(t, "output_hc", false);
  if (!is_next) t.norm("output_norm", kWidth);
  for (uint64_t i = 0; i < kLayers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    if (is_next && i == kNgramLayer) add_ngram(t, p);
    if (kIsRecurrent[i]) add_delta_net(t, p);
    if (!kIsRecurrent[i]) add_attention(t, p, is_next);
    if (is_next) {
      add_hyper_connection(t, p + "hc_attn", true);
      add_hyper_connection(t, p + "hc_ffn", true);
      add_experts(t, p);
      continue;
    }
    t.norm(p + "attn_norm", kWidth);
    t.norm(p + "post_attention_norm", kWidth);
    t.matrix(p + "ffn_gate", {kWidth, kFf});
    t.matrix(p + "ffn_up", {kWidth, kFf});
    t.matrix(p + "ffn_down", {kFf, kWidth});
  }
  return t.list;
}

void set_tiny_qwen_keys(gguf::Writer& w, const std::string& arch) {
  const std::string p = arch + ".";
  w.set_u32(p + "block_count", kLayers);
  w.set_u32(p + "context_length", 4096);
  w.set_u32(p + "embedding_length", kWidth);
  w.set_u32(p + "attention.head_count", kHeads);
  w.set_u32(p + "attention.head_count_kv", kKvHeads);
  w.set_u32(p + "attention.key_length", kHeadDim);
  w.set_u32(p + "attention.value_length", kHeadDim);
  w.set_f32(p + "attention.layer_norm_rms_epsilon", 1e-6f);
  w.set_bools(p + "attention.recurrent_layers", kIsRecurrent);
  w.set_u32(p + "rope.dimension_count", kRotated);
  w.set_f32(p + "rope.freq_base", 1e7f);
  const int32_t sections[] = {4, 2, 2, 0};
  w.set_i32s(p + "rope.dimension_sections", sections);
  w.set_u32(p + "ssm.conv_kernel", kTaps);
  w.set_u32(p + "ssm.state_size", kDeltaDim);
  w.set_u32(p + "ssm.group_count", kKeyHeads);
  w.set_u32(p + "ssm.time_step_rank", kValueHeads);
  w.set_u32(p + "ssm.inner_size", kValueHeads * kDeltaDim);
  if (arch == "qwen4exp") {
    set_flash_next_keys(w, p);
  } else {
    w.set_u32(p + "feed_forward_length", kFf);
  }
}

}  // namespace okibi::test
