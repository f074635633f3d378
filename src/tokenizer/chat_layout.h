// Chat prompts: the fixed layouts that are recognised from the text of a file's template. There is
// no template interpreter; an unknown template is refused in words.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"
#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer {

enum class ChatLayout {
  kChatMl,
  kQwen25,
  kQwen3,
  kQwen35,
  kQwen38,
  kLfm2,
  kLfm25,
  kSmolLm2,
  kLlama3,
};
std::string_view chat_layout_name(ChatLayout layout);             // "chatml", "qwen3", "lfm2", ...
Result<ChatLayout> chat_layout_from_name(std::string_view name);  // the error lists the names

// By the recognition table: first hit wins, and the marker tokens must exist as special tokens.
// A template that is recognised as a family okibi does not lay out, or not at all, is an error that
// says which and how to override.
Result<ChatLayout> recognize_chat_layout(const Tokenizer& tokenizer);

enum class Role { kSystem, kUser, kAssistant };
struct ChatMessage {
  Role role = Role::kUser;
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = false;
};

// The prompt as one string, and the byte ranges of it that okibi itself wrote. Contents are never
// part of a trusted range.
struct ChatPrompt {
  std::string text;
  std::vector<TrustedRange> trusted;
};
ChatPrompt lay_out_chat(ChatLayout layout, const Tokenizer& tokenizer,
                        std::span<const ChatMessage> messages, const ChatOptions& options);

}  // namespace okibi::tokenizer
