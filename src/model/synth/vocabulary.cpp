// See vocabulary.h. A vocabulary is: special tokens at the ids of the published one, then, in the
// ids that are left, the 256 byte symbols and the joined text of each merge.
#include "model/synth/vocabulary.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_set>

namespace okibi::model::synth {
namespace {

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

struct Special {
  std::string text;
  int32_t type = kControl;
};
using Specials = std::map<uint64_t, Special>;

std::string utf8(uint32_t code_point) {  // below 0x800
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// The symbols that stand for the 256 byte values, in the order of their code points. The 68 bytes
// that are no printable Latin-1 character take the code points from U+0100 on.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  for (uint32_t c = 0x21; c <= 0xff; ++c) {
    if (c <= 0x7e || (c >= 0xa1 && c != 0xad)) symbols.push_back(utf8(c));
  }
  for (uint32_t i = 0; i < 68; ++i) symbols.push_back(utf8(0x100 + i));
  return symbols;
}

struct Merge {
  std::string left, right;
};

// Merge number i of the made-up list: a space and a letter, two letters, those two together, then
// two pairs of letters. Every joined text is different, and both parts are made before.
Merge made_up_merge(uint64_t i) {
  constexpr uint64_t kLetters = 26, kPairs = kLetters * kLetters, kFours = kPairs * kPairs;
  const std::string space = utf8(0x120);  // the symbol of the byte 0x20
  const auto letter = [](uint64_t n) { return std::string(1, static_cast<char>('a' + n)); };
  const auto pair = [&](uint64_t n) { return letter(n / kLetters) + letter(n % kLetters); };
  if (i < kLetters) return {space, letter(i)};
  i -= kLetters;
  if (i < kPairs) return {letter(i / kLetters), letter(i % kLetters)};
  i -= kPairs;
  if (i < kLetters * kPairs) return {space + letter(i / kPairs), pair(i % kPairs)};
  i -= kLetters * kPairs;
  // A stride without common factors spreads a short list over the whole alphabet.
  const uint64_t n = i * 271829 % kFours;
  return {pair(n / kPairs), pair(n % kPairs)};
}

std::vector<Merge> to_merges(std::span<const char* const> texts) {
  std::vector<Merge> merges;
  for (const std::string text : texts) {
    const size_t space = text.find(' ');
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

std::vector<Merge> tiny_merges() {
  static constexpr const char* kMerges[] = {
#include "model/synth/tiny_merges.inc"
  };
  return to_merges(kMerges);
}

// The first n merges of a large vocabulary: learned ones, so that English takes about as many
// tokens as with the published vocabulary, then made-up ones. Every joined text is different.
std::vector<Merge> large_merges(size_t n) {
  static constexpr const char* kMerges[] = {
#include "model/synth/english_merges.inc"
  };
  std::vector<Merge> merges = to_merges(kMerges);
  merges.resize(std::min(n, merges.size()));
  std::unordered_set<std::string> joined;
  for (const Merge& merge : merges) joined.insert(merge.left + merge.right);
  for (uint64_t i = 0; merges.size() < n; ++i) {
    Merge merge = made_up_merge(i);
    if (joined.insert(merge.left + merge.right).second) merges.push_back(std::move(merge));
  }
  return merges;
}

Specials smollm2_specials() {
  const char* texts[] = {
      "<|endoftext|>",    "<|im_start|>",    "<|im_end|>",     "<repo_name>",    "<reponame>",
      "<file_sep>",       "<filename>",      "<gh_stars>",     "<issue_start>",  "<issue_comment>",
      "<issue_closed>",   "<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>",
      "<jupyter_script>", "<empty_output>"};
  Specials specials;
  for (const char* text : texts) specials[specials.size()] = {text};
  return specials;
}

Specials lfm2_specials() {
  constexpr uint64_t kEnd = 501;  // ids below are special in the published vocabulary
  Specials specials = {{0, {"<|pad|>"}},
                       {1, {"<|startoftext|>"}},
                       {2, {"<|endoftext|>"}},
                       {6, {"<|im_start|>"}},
                       {7, {"<|im_end|>"}},
                       {8, {"<|tool_list_start|>"}},
                       {9, {"<|tool_list_end|>"}},
                       {10, {"<|tool_call_start|>"}},
                       {11, {"<|tool_call_end|>"}},
                       {12, {"<|tool_response_start|>"}},
                       {13, {"<|tool_response_end|>"}},
                       {396, {"<image>"}},
                       {497, {"<|img_thumbnail|>"}},
                       {498, {"<|image_start|>"}},
                       {499, {"<|image_end|>"}},
                       {500, {"<|image_split|>"}}};
  for (uint64_t row = 1; row <= 10; ++row) {
    for (uint64_t column = 1; column <= 10; ++column) {
      specials[397 + 10 * (row - 1) + column - 1] = {"<|img_row_" + std::to_string(row) + "_col_" +
                                                     std::to_string(column) + "|>"};
    }
  }
  for (uint64_t id = 0; id < kEnd; ++id) {
    if (!specials.contains(id)) specials[id] = {"<|reserved_" + std::to_string(id) + "|>"};
  }
  return specials;
}

Specials qwen_specials(uint64_t n_vocab) {
  constexpr uint64_t kFirst = 248044;
  const Special texts[] = {{"<|endoftext|>"},
                           {"<|im_start|>"},
                           {"<|im_end|>"},
                           {"<|object_ref_start|>"},
                           {"<|object_ref_end|>"},
                           {"<|box_start|>"},
                           {"<|box_end|>"},
                           {"<|quad_start|>"},
                           {"<|quad_end|>"},
                           {"<|vision_start|>"},
                           {"<|vision_end|>"},
                           {"<|vision_pad|>"},
                           {"<|image_pad|>"},
                           {"<|video_pad|>"},
                           {"<tool_call>", kUserDefined},
                           {"</tool_call>", kUserDefined},
                           {"<think>", kUserDefined},
                           {"</think>", kUserDefined}};
  Specials specials;
  for (const Special& special : texts) specials[kFirst + specials.size()] = special;
  for (uint64_t id = kFirst + specials.size(); id < n_vocab; ++id) {
    specials[id] = {"[PAD" + std::to_string(id) + "]", kUnused};
  }
  return specials;
}

Specials tiny_specials() {
  constexpr uint64_t kFirst = 631;
  Specials specials;
  for (const char* text :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
        "<|image_pad|>", "<|video_pad|>", "<think>", "</think>"}) {
    specials[kFirst + specials.size()] = {text};
  }
  return specials;
}

// Templates are recognised by what they mention, never run by us. This one is a plain ChatML
// template whose comment mentions what tells the family.
std::string chat_template(const std::string& mentions, bool prints_bos) {
  return "{#- " + mentions + " -#}" + (prints_bos ? "{{- bos_token -}}" : "") +
         "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
         "'<|im_end|>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}"
         "{{ '<|im_start|>assistant\\n' }}{%- endif -%}";
}

struct Dialect {
  const char* pre;
  Specials specials;
  std::vector<Merge> merges;  // empty: those of a large vocabulary
  int64_t bos, eos, pad;      // bos below 0: no key
  bool adds_bos;
  std::string chat_template;
};

Dialect dialect_of(VocabularyKind kind, uint64_t n_vocab) {
  switch (kind) {
    case VocabularyKind::kSmolLm2:
      return {"smollm", smollm2_specials(),
              {},       1,
              2,        2,
              false,    chat_template("an assistant named SmolLM", false)};
    case VocabularyKind::kLfm2:
      return {"lfm2", lfm2_specials(),
              {},     1,
              7,      0,
              true,   chat_template("List of tools: <|tool_list_start|>", true)};
    case VocabularyKind::kLfm25:
      return {"lfm2", lfm2_specials(), {}, 1, 7, 0, true, chat_template("List of tools: ", true)};
    case VocabularyKind::kQwen35:
      return {"qwen35", qwen_specials(n_vocab),
              {},       248044,
              248046,   248044,
              false,    chat_template("enable_thinking, <function=name>", false)};
    case VocabularyKind::kQwen38:
      return {"qwen35", qwen_specials(n_vocab),
              {},       248044,
              248046,   248044,
              false,    chat_template("reasoning_effort", false)};
    case VocabularyKind::kQwenTiny:
      return {"qwen35",      tiny_specials(),
              tiny_merges(), -1,
              633,           631,
              false,         chat_template("reasoning_effort", false)};
  }
  return {};
}

}  // namespace

QwenTokens qwen_tokens(uint64_t n_vocab, bool is_tiny) {
  QwenTokens found = {};
  for (const auto& [id, special] : is_tiny ? tiny_specials() : qwen_specials(n_vocab)) {
    if (special.text == "<|endoftext|>") found.end_of_text = static_cast<uint32_t>(id);
    if (special.text == "<|image_pad|>") found.image = static_cast<uint32_t>(id);
  }
  return found;
}

void add_vocabulary_keys(SynthPlan& plan, VocabularyKind kind, uint64_t n_vocab) {
  Dialect dialect = dialect_of(kind, n_vocab);
  const std::vector<std::string> symbols = byte_symbols();
  std::vector<std::string> tokens(n_vocab);
  std::vector<int32_t> types(n_vocab, kNormal);
  std::vector<std::string> merges;
  if (dialect.merges.empty()) {
    dialect.merges = large_merges(n_vocab - dialect.specials.size() - symbols.size());
  }
  size_t n_plain = 0;
  for (uint64_t id = 0; id < n_vocab; ++id) {
    if (auto special = dialect.specials.find(id); special != dialect.specials.end()) {
      tokens[id] = special->second.text;
      types[id] = special->second.type;
      continue;
    }
    if (n_plain < symbols.size()) {
      tokens[id] = symbols[n_plain];
    } else {
      const Merge& merge = dialect.merges.at(n_plain - symbols.size());
      merges.push_back(merge.left + " " + merge.right);
      tokens[id] = merge.left + merge.right;
    }
    ++n_plain;
  }
  const auto id_key = [&](const char* name, int64_t id) {
    if (id >= 0) plan.u32(std::string("tokenizer.ggml.") + name, static_cast<uint64_t>(id));
  };
  plan.key("tokenizer.ggml.model", std::string("gpt2"));
  plan.key("tokenizer.ggml.pre", std::string(dialect.pre));
  plan.key("tokenizer.ggml.tokens", std::move(tokens));
  plan.key("tokenizer.ggml.token_type", std::move(types));
  plan.key("tokenizer.ggml.merges", std::move(merges));
  id_key("bos_token_id", dialect.bos);
  id_key("eos_token_id", dialect.eos);
  id_key("padding_token_id", dialect.pad);
  plan.key("tokenizer.ggml.add_bos_token", dialect.adds_bos);
  plan.key("tokenizer.chat_template", std::move(dialect.chat_template));
}

}  // namespace okibi::model::synth
