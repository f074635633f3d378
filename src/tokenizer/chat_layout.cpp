// Which chat layout a file wants, by the text of its template. The table is the whole decision: a
// template is not interpreted. How each layout is written stands in chat_layout_text.cpp.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "tokenizer/chat_layout.h"

namespace okibi::tokenizer {
namespace {

struct LayoutName {
  ChatLayout layout;
  std::string_view name;
  std::string_view markers[2];  // must be special tokens of the vocabulary
};
constexpr LayoutName kLayouts[] = {
    {ChatLayout::kChatMl, "chatml", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kQwen25, "qwen2.5", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kQwen3, "qwen3", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kQwen35, "qwen3.5", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kQwen38, "qwen3.8", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kLfm2, "lfm2", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kLfm25, "lfm2.5", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kSmolLm2, "smollm2", {"<|im_start|>", "<|im_end|>"}},
    {ChatLayout::kLlama3, "llama3", {"<|start_header_id|>", "<|end_header_id|>"}},
};

const LayoutName& entry_of(ChatLayout layout) {
  return *std::find_if(std::begin(kLayouts), std::end(kLayouts),
                       [layout](const LayoutName& entry) { return entry.layout == layout; });
}

// A row of the recognition table: a template that contains every one of `texts` is of this kind.
struct Row {
  std::string_view texts[3];
  std::optional<ChatLayout> layout;  // none: a family that okibi does not lay out
  std::string_view family;
};
constexpr std::string_view kChatMlStart = "<|im_start|>";
constexpr Row kRows[] = {
    {{kChatMlStart, "<|im_sep|>"}, {}, "Phi-4"},
    {{kChatMlStart, "<end_of_utterance>"}, {}, "SmolVLM"},
    {{kChatMlStart, "reasoning_effort"}, ChatLayout::kQwen38, ""},
    {{kChatMlStart, "<function=", "enable_thinking"}, ChatLayout::kQwen35, ""},
    {{kChatMlStart, "enable_thinking", "last_query_index"}, ChatLayout::kQwen3, ""},
    {{kChatMlStart, "## Metadata"}, {}, "SmolLM3"},
    {{kChatMlStart, "named SmolLM"}, ChatLayout::kSmolLm2, ""},
    {{kChatMlStart, "created by Alibaba Cloud"}, ChatLayout::kQwen25, ""},
    {{kChatMlStart, "List of tools: ", "<|tool_list_start|>"}, ChatLayout::kLfm2, ""},
    {{kChatMlStart, "List of tools: "}, ChatLayout::kLfm25, ""},
    {{kChatMlStart}, ChatLayout::kChatMl, ""},
    {{"[INST]", "[SYSTEM_PROMPT]"}, {}, "Mistral v7"},
    {{"[INST]", "<<SYS>>"}, {}, "Llama 2"},
    {{"[INST]"}, {}, "Mistral"},
    {{"<|start_header_id|>", "<|end_header_id|>"}, ChatLayout::kLlama3, ""},
    {{"<start_of_turn>"}, {}, "Gemma 2 or 3"},
    {{"<turn|>"}, {}, "Gemma 4"},
    {{"<|assistant|>", "<|end|>"}, {}, "Phi-3"},
    {{"<|assistant|>", "[gMASK]<sop>"}, {}, "GLM-4"},
    {{"<|start|>", "<|channel|>"}, {}, "Harmony (gpt-oss)"},
    {{"<|start_of_role|>"}, {}, "Granite"},
    {{"<\xEF\xBD\x9C"
      "Assistant\xEF\xBD\x9C>",
      "<\xEF\xBD\x9C"
      "User\xEF\xBD\x9C>"},
     {},
     "DeepSeek V3 or R1"},
    {{"<|START_OF_TURN_TOKEN|>"}, {}, "Command R"},
};

const Row* first_hit(std::string_view chat_template) {
  for (const Row& row : kRows) {
    const bool all = std::all_of(std::begin(row.texts), std::end(row.texts), [&](auto text) {
      return chat_template.find(text) != std::string_view::npos;
    });
    if (all) return &row;
  }
  return nullptr;
}

std::string list_of_names() {
  std::string names;
  for (const LayoutName& entry : kLayouts) {
    names += names.empty() ? "" : ", ";
    names += entry.name;
  }
  return names;
}

std::string hint() {
  return fmt::format("; --chat-layout NAME overrides (known: {})", list_of_names());
}

bool is_special(const Tokenizer& tokenizer, std::string_view text) {
  const TokenId id = tokenizer.find(text);
  if (id == kNoToken) return false;
  const TokenType type = tokenizer.token_type(id);
  return type == TokenType::kControl || type == TokenType::kUserDefined;
}

}  // namespace

std::string_view chat_layout_name(ChatLayout layout) {
  return entry_of(layout).name;
}

Result<ChatLayout> chat_layout_from_name(std::string_view name) {
  for (const LayoutName& entry : kLayouts) {
    if (entry.name == name) return entry.layout;
  }
  return invalid_argument(fmt::format("there is no chat layout \"{}\"; known are {}",
                                      name.substr(0, 80), list_of_names()));
}

Result<ChatLayout> recognize_chat_layout(const Tokenizer& tokenizer) {
  const std::string& chat_template = tokenizer.chat_template();
  if (chat_template.empty()) {
    const LayoutName& chatml = entry_of(ChatLayout::kChatMl);
    if (!is_special(tokenizer, chatml.markers[0]) || !is_special(tokenizer, chatml.markers[1])) {
      return unsupported("the file has no chat template, and its vocabulary no <|im_start|>" +
                         hint());
    }
    return ChatLayout::kChatMl;
  }
  const Row* const row = first_hit(chat_template);
  if (row == nullptr) {
    return unsupported("the chat template of the file is of no kind okibi knows" + hint());
  }
  if (!row->layout) {
    return unsupported(fmt::format(
        "the chat template of the file is of the {} kind, which okibi does not lay out{}",
        row->family, hint()));
  }
  for (std::string_view marker : entry_of(*row->layout).markers) {
    if (is_special(tokenizer, marker)) continue;
    return bad_data(fmt::format(
        "the chat template of the file is of the {} kind, but {} is no special token of its "
        "vocabulary{}",
        chat_layout_name(*row->layout), marker, hint()));
  }
  return *row->layout;
}

}  // namespace okibi::tokenizer
