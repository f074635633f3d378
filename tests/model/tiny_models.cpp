#include "tiny_models.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <vector>

#include "gguf/writer.h"
#include "tensor/quantize.h"
#include "tiny_tensors.h"

namespace okibi::test {
namespace {

constexpr uint64_t kWidth = 256, kFf = 512, kVocab = 320, kHeadDim = 32, kTaps = 3;
constexpr int kLayers = 4, kHeads = 8, kKvHeads = 2;

bool is_conv_layer(const std::string& arch, int layer) {
  return arch == "lfm2" && layer % 2 == 0;
}

bool is_qwen(const std::string& arch) {
  return arch == "qwen35" || arch == "qwen4exp";
}

std::vector<TinyTensor> tensors_of(const std::string& arch, DType type) {
  if (is_qwen(arch)) return tiny_qwen_tensors(arch, type, kVocab);
  std::vector<TinyTensor> list;
  const auto matrix = [&](const std::string& name, uint64_t n_in, uint64_t n_out) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(n_in));
    list.push_back({name + ".weight", type, {n_in, n_out}, 0.0f, deviation});
  };
  const auto norm = [&](const std::string& name, uint64_t n) {
    list.push_back({name + ".weight", DType::kF32, {n}, 1.0f, 0.1f});
  };
  matrix("token_embd", kWidth, kVocab);
  for (int i = 0; i < kLayers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    norm(p + "attn_norm", kWidth);
    if (is_conv_layer(arch, i)) {
      matrix(p + "shortconv.in_proj", kWidth, 3 * kWidth);
      matrix(p + "shortconv.out_proj", kWidth, kWidth);
      list.push_back({p + "shortconv.conv.weight", DType::kF32, {kTaps, kWidth}, 0.3f, 0.3f});
    } else {
      matrix(p + "attn_q", kWidth, kHeads * kHeadDim);
      matrix(p + "attn_k", kWidth, kKvHeads * kHeadDim);
      matrix(p + "attn_v", kWidth, kKvHeads * kHeadDim);
      matrix(p + "attn_output", kHeads * kHeadDim, kWidth);
      if (arch == "lfm2") {
        norm(p + "attn_q_norm", kHeadDim);
        norm(p + "attn_k_norm", kHeadDim);
      }
    }
    norm(p + "ffn_norm", kWidth);
    matrix(p + "ffn_gate", kWidth, kFf);
    matrix(p + "ffn_up", kWidth, kFf);
    matrix(p + "ffn_down", kFf, kWidth);
  }
  norm(arch == "lfm2" ? "token_embd_norm" : "output_norm", kWidth);
  return list;
}

std::string utf8(uint32_t code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

// The 256 byte symbols of byte-level BPE, then control tokens, then fillers.
std::vector<std::string> vocabulary(std::vector<int32_t>* types) {
  std::vector<std::string> tokens;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae);
    tokens.push_back(utf8(printable ? b : next++));
    types->push_back(1);
  }
  for (const char* special : {"<|pad|>", "<|startoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.push_back(special);
    types->push_back(3);
  }
  while (tokens.size() < kVocab) {
    tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    types->push_back(5);
  }
  return tokens;
}

void set_vocabulary(gguf::Writer& w, const std::string& pre) {
  std::vector<int32_t> types;
  const std::vector<std::string> tokens = vocabulary(&types);
  w.set_string("tokenizer.ggml.model", "gpt2");
  w.set_string("tokenizer.ggml.pre", pre);
  w.set_strings("tokenizer.ggml.tokens", tokens);
  w.set_i32s("tokenizer.ggml.token_type", types);
  const std::vector<std::string> merges = {"a b"};
  w.set_strings("tokenizer.ggml.merges", merges);
  w.set_u32("tokenizer.ggml.bos_token_id", 257);
  w.set_u32("tokenizer.ggml.eos_token_id", 259);
}

void set_keys(gguf::Writer& w, const std::string& arch) {
  const std::string p = arch + ".";
  w.set_string("general.architecture", arch);
  w.set_string("general.name", "tiny " + arch);
  if (is_qwen(arch)) {
    set_tiny_qwen_keys(w, arch);
    set_vocabulary(w, "qwen35");
    return;
  }
  w.set_u32(p + "block_count", kLayers);
  w.set_u32(p + "context_length", 4096);
  w.set_u32(p + "embedding_length", kWidth);
  w.set_u32(p + "feed_forward_length", kFf);
  w.set_u32(p + "attention.head_count", kHeads);
  std::vector<int32_t> kv;
  for (int i = 0; i < kLayers; ++i) kv.push_back(is_conv_layer(arch, i) ? 0 : kKvHeads);
  w.set_i32s(p + "attention.head_count_kv", kv);
  w.set_u32(p + "attention.key_length", kHeadDim);
  w.set_u32(p + "attention.value_length", kHeadDim);
  w.set_f32(p + "attention.layer_norm_rms_epsilon", 1e-5f);
  w.set_f32(p + "rope.freq_base", 10000.0f);
  if (arch == "lfm2") w.set_u32("lfm2.shortconv.l_cache", kTaps);
  set_vocabulary(w, arch == "lfm2" ? "lfm2" : "smollm");
}

void write_model(const std::string& arch, DType type, const std::string& path) {
  gguf::Writer writer;
  set_keys(writer, arch);
  const std::vector<TinyTensor> tensors = tensors_of(arch, type);
  for (const TinyTensor& t : tensors) writer.add_tensor(t.name, t.type, t.ne);
  ASSERT_TRUE(writer.begin(path).ok());
  std::mt19937_64 random(12345);
  for (const TinyTensor& t : tensors) {
    std::normal_distribution<float> value(t.mean, t.deviation);
    uint64_t n_rows = 1;
    for (size_t i = 1; i < t.ne.size(); ++i) n_rows *= t.ne[i];
    std::vector<float> row(t.ne[0]);
    std::vector<uint8_t> bytes(row_bytes(t.type, t.ne[0]));
    for (uint64_t r = 0; r < n_rows; ++r) {
      for (float& v : row) v = value(random);
      ASSERT_TRUE(
          quantize_row(t.type, row.data(), static_cast<int64_t>(row.size()), bytes.data()).ok());
      ASSERT_TRUE(writer.write(bytes).ok());
    }
  }
  const Status finished = writer.finish();
  ASSERT_TRUE(finished.ok()) << finished.message();
}

}  // namespace

std::string tiny_model(const std::string& architecture, DType type) {
  static std::map<std::string, std::string> written;
  const std::string kind = architecture + "-" + std::string(name_of(type));
  std::string& path = written[kind];
  if (path.empty()) {
    path = std::filesystem::temp_directory_path() /
           ("okibi-tiny-" + std::to_string(getpid()) + "-" + kind + ".gguf");
    write_model(architecture, type, path);
    static std::vector<std::string> to_remove;
    if (to_remove.empty()) {
      std::atexit([] {
        for (const std::string& p : to_remove) std::filesystem::remove(p);
      });
    }
    to_remove.push_back(path);
  }
  return path;
}

}  // namespace okibi::test
