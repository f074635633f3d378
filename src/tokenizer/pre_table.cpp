// The table of split-rule names, and the names that are refused with the reason why.
#include "tokenizer/pre_table.h"

#include <fmt/core.h>

namespace okibi::tokenizer {
namespace {

constexpr PreEntry kTable[] = {
    {"default", Pattern::kDefault},
    {"gpt-2", Pattern::kGpt2},
    {"phi-2", Pattern::kGpt2},
    {"jina-es", Pattern::kGpt2},
    {"jina-de", Pattern::kGpt2},
    {"jina-v2-es", Pattern::kGpt2},
    {"jina-v2-de", Pattern::kGpt2},
    {"gigachat", Pattern::kGpt2},
    {"a.x-4.0", Pattern::kGpt2},
    {"mellum", Pattern::kGpt2},
    {"modern-bert", Pattern::kGpt2},
    {"exaone4", Pattern::kGpt2},
    {"mpt", Pattern::kGpt2},
    {"olmo", Pattern::kGpt2},
    {"jais", Pattern::kGpt2},
    {"trillion", Pattern::kGpt2},
    {"granite-docling", Pattern::kGpt2},
    {"llama3", Pattern::kLlama3, true, true},
    {"llama-v3", Pattern::kLlama3, true, true},
    {"llama-bpe", Pattern::kLlama3, true, true},
    {"falcon3", Pattern::kLlama3, true, true},
    {"falcon-h1", Pattern::kLlama3, true, true},
    {"pixtral", Pattern::kLlama3, true, true},
    {"midm-2.0", Pattern::kLlama3, true, true},
    {"lfm2", Pattern::kLlama3, true, true},
    {"jina-v5-nano", Pattern::kLlama3, true, true},
    {"dbrx", Pattern::kLlama3},
    {"smaug-bpe", Pattern::kLlama3},
    {"glm4", Pattern::kLlama3},
    {"chatglm-bpe", Pattern::kLlama3},
    {"qwen2", Pattern::kQwen2, false, false, true},
    {"deepseek-r1-qwen", Pattern::kQwen2},
    {"kormo", Pattern::kQwen2},
    {"f2llmv2", Pattern::kQwen2},
    {"hunyuan", Pattern::kQwen2},
    {"solar-open", Pattern::kQwen2},
    {"grok-2", Pattern::kQwen2},
    {"stablelm2", Pattern::kQwen2},
    {"megrez", Pattern::kQwen2},
    {"qwen35", Pattern::kQwen35, false, false, true},
    {"ufakzeka", Pattern::kQwen2NoContractions},
    {"smollm", Pattern::kDigitGpt2},
    {"command-r", Pattern::kDigitGpt2},
    {"starcoder", Pattern::kDigitGpt2},
    {"refact", Pattern::kDigitGpt2},
    {"codeshell", Pattern::kDigitGpt2},
    {"exaone", Pattern::kDigitGpt2},
    {"minerva-7b", Pattern::kDigitGpt2},
    {"mellum2", Pattern::kDigitGpt2},
    {"falcon", Pattern::kFalcon},
    {"deepseek-llm", Pattern::kDsLlm},
    {"deepseek-coder", Pattern::kDsCoder},
    {"deepseek-v3", Pattern::kDsV3},
    {"hunyuan-dense", Pattern::kDsV3},
    {"joyai-llm", Pattern::kDsV3},
    {"hy_v4", Pattern::kDsV3},
    {"tekken", Pattern::kTekken, true, true},
    {"gpt-4o", Pattern::kGpt4o},
    {"llama4", Pattern::kGpt4o},
    {"kanana2", Pattern::kGpt4o},
    {"talkie", Pattern::kGpt4o},
    {"minimax-m2", Pattern::kGpt4o},
    {"granite-embed-multi-97m", Pattern::kGpt4o, true},
    {"tiny_aya", Pattern::kTinyAya},
    {"cohere2moe", Pattern::kTinyAya},
    {"bailingmoe", Pattern::kBailing},
    {"bailingmoe2", Pattern::kBailing},
    {"llada-moe", Pattern::kBailing},
    {"seed-coder", Pattern::kSeed},
    {"laguna", Pattern::kLaguna},
    {"minicpm5", Pattern::kMiniCpm5, true},
    {"exaone-moe", Pattern::kExaMoe},
    {"poro-chat", Pattern::kBloom},
    {"bloom", Pattern::kBloom},
    {"gpt3-finnish", Pattern::kBloom},
    {"viking", Pattern::kViking},
};

struct Refusal {
  std::string_view name, reason;
};
constexpr Refusal kRefused[] = {
    {"kimi-k2", "its vocabulary has no merge list"},
    {"jina-v1-en", "it needs a separator token after the text"},
    {"jina-v2-code", "it needs a separator token after the text"},
    {"roberta-bpe", "it needs a separator token after the text"},
    {"gemma4", "its merges work on characters, not on bytes"},
    {"granite-embed-multi-311m", "its merges work on characters, not on bytes"},
    {"sarvam-moe", "its merges work on characters, not on bytes"},
};

}  // namespace

Result<PreEntry> find_pre(std::string_view name) {
  if (name.empty()) name = "default";
  for (const PreEntry& entry : kTable) {
    if (entry.name == name) return entry;
  }
  for (const Refusal& refusal : kRefused) {
    if (refusal.name == name) {
      return unsupported(fmt::format("tokenizer.ggml.pre is \"{}\", which okibi does not do: {}",
                                     name, refusal.reason));
    }
  }
  return unsupported(fmt::format(
      "tokenizer.ggml.pre is \"{}\", a split rule okibi does not know; guessing one would give a "
      "model that looks slightly stupid",
      name.substr(0, 80)));
}

}  // namespace okibi::tokenizer
