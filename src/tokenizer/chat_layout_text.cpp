// Writes chat prompts. What okibi writes itself is trusted and may hold control tokens; message
// contents never are.
#include <algorithm>

#include "tokenizer/chat_layout.h"
#include "tokenizer/unicode.h"

namespace okibi::tokenizer {
namespace {

constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kEmptyThought = "<think>\n\n</think>\n\n";

bool is_template_space(uint32_t cp) {
  return (CharTable::get()[cp] & kClsSpace) != 0 || (cp >= 0x1C && cp <= 0x1F);
}

// What a template's trim does: space characters of all kinds go, at both ends. Contents may be
// anything; a byte that is no UTF-8 is no space.
std::string_view trimmed(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text.data(), text.data() + text.size());
    int n = 0;
    if (step.kind != Utf8Step::kGood || !is_template_space(decode_valid(text.data(), &n))) break;
    text.remove_prefix(static_cast<size_t>(n));
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && text.size() - last < 4 && (text[last] & 0xC0) == 0x80) --last;
    const Utf8Step step = next_utf8(text.data() + last, text.data() + text.size());
    int n = 0;
    if (step.kind != Utf8Step::kGood || last + static_cast<size_t>(step.n_bytes) != text.size() ||
        !is_template_space(decode_valid(text.data() + last, &n))) {
      break;
    }
    text.remove_suffix(static_cast<size_t>(n));
  }
  return text;
}

std::string_view without_leading_newlines(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view without_newlines_around(std::string_view text) {
  text = without_leading_newlines(text);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return "user";
}

class PromptWriter {
 public:
  void trusted(std::string_view text) {
    if (text.empty()) return;
    const size_t begin = prompt_.text.size();
    prompt_.text += text;
    if (!prompt_.trusted.empty() && prompt_.trusted.back().end == begin) {
      prompt_.trusted.back().end = prompt_.text.size();
    } else {
      prompt_.trusted.push_back({begin, prompt_.text.size()});
    }
  }
  void untrusted(std::string_view text) { prompt_.text += text; }

  void open_chatml(std::string_view role) {
    trusted("<|im_start|>");
    trusted(role);
    trusted("\n");
  }
  void close_chatml() { trusted("<|im_end|>\n"); }
  void chatml_turn(Role role, std::string_view content) {
    open_chatml(role_name(role));
    untrusted(content);
    close_chatml();
  }

  ChatPrompt take() { return std::move(prompt_); }

 private:
  ChatPrompt prompt_;
};

using Messages = std::span<const ChatMessage>;

bool begins_with_system(Messages messages) {
  return !messages.empty() && messages[0].role == Role::kSystem;
}

// The last user message that is not a tool's answer; the last message if there is none.
size_t last_query(Messages messages, bool trim) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != Role::kUser) continue;
    std::string_view text = messages[i].content;
    if (trim) text = trimmed(text);
    constexpr std::string_view kOpen = "<tool_response>", kClose = "</tool_response>";
    if (!text.starts_with(kOpen) || !text.ends_with(kClose)) return i;
  }
  return messages.empty() ? 0 : messages.size() - 1;
}

// An assistant's text as the thinking models write it: the thought, if any, and the answer.
struct Reply {
  std::string_view thought, answer;
};
Reply split_thought(std::string_view content) {
  const size_t first_end = content.find(kThinkEnd);
  if (first_end == std::string_view::npos) return {{}, content};
  std::string_view thought = content.substr(0, first_end);
  constexpr std::string_view kThinkBegin = "<think>";
  if (const size_t begin = thought.rfind(kThinkBegin); begin != std::string_view::npos) {
    thought.remove_prefix(begin + kThinkBegin.size());
  }
  const std::string_view answer = content.substr(content.rfind(kThinkEnd) + kThinkEnd.size());
  return {without_newlines_around(thought), without_leading_newlines(answer)};
}

void thought_and_answer(PromptWriter* out, std::string_view thought, std::string_view answer) {
  out->open_chatml("assistant");
  out->trusted("<think>\n");
  out->untrusted(thought);
  out->trusted("\n</think>\n\n");
  out->untrusted(answer);
  out->close_chatml();
}

void plain_turns(PromptWriter* out, Messages messages) {
  for (const ChatMessage& message : messages) out->chatml_turn(message.role, message.content);
}

void with_default_system(PromptWriter* out, Messages messages, std::string_view system) {
  if (!begins_with_system(messages)) {
    out->open_chatml("system");
    out->trusted(system);
    out->close_chatml();
  }
  plain_turns(out, messages);
}

void qwen3_turns(PromptWriter* out, Messages messages) {
  const size_t query = last_query(messages, false);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != Role::kAssistant) {
      out->chatml_turn(messages[i].role, messages[i].content);
      continue;
    }
    const Reply reply = split_thought(messages[i].content);
    const bool is_last = i + 1 == messages.size();
    if (i > query && (is_last || !reply.thought.empty())) {
      thought_and_answer(out, reply.thought, without_leading_newlines(reply.answer));
    } else {
      out->chatml_turn(Role::kAssistant, reply.answer);
    }
  }
}

void qwen35_turns(PromptWriter* out, Messages messages) {
  const size_t query = last_query(messages, true);
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view content = trimmed(messages[i].content);
    if (messages[i].role != Role::kAssistant) {
      out->chatml_turn(messages[i].role, content);
      continue;
    }
    const Reply reply = split_thought(content);
    if (i > query) {
      thought_and_answer(out, trimmed(reply.thought), reply.answer);
    } else {
      out->chatml_turn(Role::kAssistant, reply.answer);
    }
  }
}

// Thoughts come in a field of their own there, which okibi's messages do not have: each turn shows
// an empty one. The sentence on reasoning effort is that of medium effort, which is none.
void qwen38_turns(PromptWriter* out, Messages messages) {
  for (const ChatMessage& message : messages) {
    const std::string_view content = trimmed(message.content);
    if (message.role == Role::kAssistant) {
      thought_and_answer(out, {}, content);
    } else if (message.role != Role::kSystem || !content.empty()) {
      out->chatml_turn(message.role, content);
    }
  }
}

void begin_of_text(PromptWriter* out, const Tokenizer& tokenizer, std::string_view fallback) {
  if (tokenizer.bos() != kNoToken) {
    out->trusted(tokenizer.token_text(tokenizer.bos()));
  } else if (tokenizer.find(fallback) != kNoToken) {
    out->trusted(fallback);
  }
}

// Both generations leave out an empty system turn. The second one forgets old thoughts: those of
// all replies but the last or, in some files, of all replies before the last question.
void lfm_turns(PromptWriter* out, const Tokenizer& tokenizer, Messages messages, bool forget) {
  begin_of_text(out, tokenizer, "<|startoftext|>");
  const bool by_question = tokenizer.chat_template().find("last_user_index") != std::string::npos;
  size_t keep_from = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == (by_question ? Role::kUser : Role::kAssistant)) keep_from = i;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string_view content = messages[i].content;
    if (i == 0 && messages[i].role == Role::kSystem && content.empty()) continue;
    if (forget && messages[i].role == Role::kAssistant && i < keep_from) {
      const size_t end = content.rfind(kThinkEnd);
      if (end != std::string_view::npos) content = trimmed(content.substr(end + kThinkEnd.size()));
    }
    out->chatml_turn(messages[i].role, content);
  }
}

void llama3_turns(PromptWriter* out, const Tokenizer& tokenizer, Messages messages) {
  const auto open = [out](std::string_view role) {
    out->trusted("<|start_header_id|>");
    out->trusted(role);
    out->trusted("<|end_header_id|>\n\n");
  };
  begin_of_text(out, tokenizer, "<|begin_of_text|>");
  // From 3.1 on there is always a system turn, and it begins with two dates. The second one is the
  // template's own default: a date that moves would change every prompt every day.
  const bool dated = tokenizer.chat_template().find("Cutting Knowledge Date") != std::string::npos;
  if (dated) {
    open("system");
    out->trusted("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (begins_with_system(messages)) {
      out->untrusted(trimmed(messages[0].content));
      messages = messages.subspan(1);
    }
    out->trusted("<|eot_id|>");
  }
  for (const ChatMessage& message : messages) {
    open(role_name(message.role));
    out->untrusted(trimmed(message.content));
    out->trusted("<|eot_id|>");
  }
}

void turns(PromptWriter* out, ChatLayout layout, const Tokenizer& tokenizer, Messages messages) {
  switch (layout) {
    case ChatLayout::kChatMl:
      return plain_turns(out, messages);
    case ChatLayout::kQwen25:
      return with_default_system(
          out, messages, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    case ChatLayout::kQwen3:
      return qwen3_turns(out, messages);
    case ChatLayout::kQwen35:
      return qwen35_turns(out, messages);
    case ChatLayout::kQwen38:
      return qwen38_turns(out, messages);
    case ChatLayout::kLfm2:
      return lfm_turns(out, tokenizer, messages, false);
    case ChatLayout::kLfm25:
      return lfm_turns(out, tokenizer, messages, true);
    case ChatLayout::kSmolLm2:
      return with_default_system(
          out, messages, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
    case ChatLayout::kLlama3:
      return llama3_turns(out, tokenizer, messages);
  }
}

void generation_prompt(PromptWriter* out, ChatLayout layout, bool enable_thinking) {
  if (layout == ChatLayout::kLlama3) {
    out->trusted("<|start_header_id|>assistant<|end_header_id|>\n\n");
    return;
  }
  out->open_chatml("assistant");
  const bool opens_thought = layout == ChatLayout::kQwen35 || layout == ChatLayout::kQwen38;
  if (opens_thought || layout == ChatLayout::kQwen3) {
    if (!enable_thinking) {
      out->trusted(kEmptyThought);
    } else if (opens_thought) {
      out->trusted("<think>\n");
    }
  }
}

}  // namespace

ChatPrompt lay_out_chat(ChatLayout layout, const Tokenizer& tokenizer,
                        std::span<const ChatMessage> messages, const ChatOptions& options) {
  PromptWriter out;
  turns(&out, layout, tokenizer, messages);
  if (options.add_generation_prompt) generation_prompt(&out, layout, options.enable_thinking);
  return out.take();
}

}  // namespace okibi::tokenizer
