// Builds VocabularyData from the tokenizer.json files of tests/golden and from literals, so that
// tokenizer tests need no model file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer::testing {

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

inline std::string golden_path(const std::string& name) {
  return std::string(OKIBI_GOLDEN_DIR) + "/" + name;
}

inline void set_token(VocabularyData* data, size_t id, const std::string& text, TokenType type) {
  if (data->tokens.size() <= id) {
    data->tokens.resize(id + 1);
    data->types.resize(id + 1, static_cast<int32_t>(TokenType::kUnused));
  }
  data->tokens[id] = text;
  data->types[id] = static_cast<int32_t>(type);
}

// A byte-level BPE tokenizer.json; `pre` is not in the file.
inline VocabularyData vocabulary_from_json(const nlohmann::json& json, const std::string& pre) {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = pre;
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    set_token(&data, id.get<size_t>(), text, TokenType::kNormal);
  }
  for (const auto& token : json["added_tokens"]) {
    set_token(&data, token["id"].get<size_t>(), token["content"].get<std::string>(),
              token["special"].get<bool>() ? TokenType::kControl : TokenType::kUserDefined);
  }
  for (const auto& merge : json["model"]["merges"]) {
    data.merges.push_back(merge.is_string()
                              ? merge.get<std::string>()
                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return data;
}

struct GoldenVocabulary {
  const char* folder;
  const char* pre;
};
inline constexpr GoldenVocabulary kGoldenVocabularies[] = {
    {"lfm2vl-tiny", "lfm2"},      {"qwen35-tiny", "qwen35"},     {"qwen4exp-tiny", "qwen35"},
    {"qwen4exp-small", "qwen35"}, {"qwen4exp-budget", "qwen35"},
};

inline VocabularyData golden_vocabulary(const GoldenVocabulary& golden) {
  const std::string folder = golden_path(golden.folder);
  VocabularyData data = vocabulary_from_json(read_json(folder + "/tokenizer.json"), golden.pre);
  const nlohmann::json config = read_json(folder + "/tokenizer_config.json");
  const auto id_of = [&](const char* key) -> int64_t {
    if (!config.contains(key)) return -1;
    const std::string text = config[key].get<std::string>();
    const auto it = std::find(data.tokens.begin(), data.tokens.end(), text);
    return it == data.tokens.end() ? -1 : it - data.tokens.begin();
  };
  data.bos = id_of("bos_token");
  data.eos = id_of("eos_token");
  data.add_bos = config.value("add_bos_token", false) ? 1 : 0;
  data.chat_template = config.value("chat_template", "");
  return data;
}

inline std::shared_ptr<const Tokenizer> create_or_fail(VocabularyData data, int nfc = -1) {
  auto result = Tokenizer::create(std::move(data), nfc);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : nullptr;
}

// All 256 bytes as tokens 0..255 of a byte-level vocabulary, and no merges yet.
inline VocabularyData byte_vocabulary(const std::string& pre = "gpt-2") {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = pre;
  for (size_t b = 0; b < 256; ++b) {
    std::string text;
    append_utf8(&text, kByteAlphabet.code_point(static_cast<uint8_t>(b)));
    set_token(&data, b, text, TokenType::kNormal);
  }
  return data;
}

inline TokenId add_token(VocabularyData* data, const std::string& text, TokenType type) {
  set_token(data, data->tokens.size(), text, type);
  return static_cast<TokenId>(data->tokens.size() - 1);
}

// Appends the merge and the token it makes.
inline TokenId add_merge(VocabularyData* data, const std::string& left, const std::string& right) {
  data->merges.push_back(left + " " + right);
  return add_token(data, left + right, TokenType::kNormal);
}

inline std::vector<TokenId> encode_or_fail(const Tokenizer& tokenizer, const std::string& text,
                                           EncodeOptions options = {}) {
  auto result = tokenizer.encode(text, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(*result) : std::vector<TokenId>();
}

}  // namespace okibi::tokenizer::testing
