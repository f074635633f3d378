// See text_impl.h.
#include "engine/text_impl.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_layout.h"
#include "tokenizer/stream_decoder.h"

namespace okibi::engine {
namespace {

using tokenizer::ChatLayout;
using tokenizer::Tokenizer;

// Holds the tokenizer too, so that a stream may outlive the Text it came from.
class TextStreamImpl final : public TextStream {
 public:
  TextStreamImpl(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop_strings)
      : tokenizer_(std::move(tokenizer)), decoder_(*tokenizer_, std::move(stop_strings)) {}

  std::string push(TokenId id) override { return decoder_.push(id); }
  bool stopped() const override { return decoder_.stopped(); }
  std::string finish() override { return decoder_.finish(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  tokenizer::StreamDecoder decoder_;
};

Result<tokenizer::ChatMessage> checked_message(const Message& message) {
  if (message.role == "system") {
    return tokenizer::ChatMessage{tokenizer::Role::kSystem, message.content};
  }
  if (message.role == "user") {
    return tokenizer::ChatMessage{tokenizer::Role::kUser, message.content};
  }
  if (message.role == "assistant") {
    return tokenizer::ChatMessage{tokenizer::Role::kAssistant, message.content};
  }
  return invalid_argument("a message has the role \"" + message.role +
                          "\"; expected \"system\", \"user\" or \"assistant\"");
}

// The prompt cut at the borders of its trusted ranges, which ascend and do not overlap.
std::vector<PromptPart> split_parts(const tokenizer::ChatPrompt& prompt) {
  std::vector<PromptPart> parts;
  const auto add = [&](size_t begin, size_t end, bool trusted) {
    if (begin < end) parts.push_back({prompt.text.substr(begin, end - begin), trusted});
  };
  size_t at = 0;
  for (const tokenizer::TrustedRange& range : prompt.trusted) {
    add(at, range.begin, false);
    add(range.begin, range.end, true);
    at = range.end;
  }
  add(at, prompt.text.size(), false);
  return parts;
}

class TextImpl final : public Text {
 public:
  TextImpl(std::shared_ptr<const Tokenizer> tokenizer, const std::string& chat_layout_override)
      : tokenizer_(std::move(tokenizer)),
        layout_(chat_layout_override.empty()
                    ? tokenizer::recognize_chat_layout(*tokenizer_)
                    : tokenizer::chat_layout_from_name(chat_layout_override)) {}

  Result<std::vector<TokenId>> encode(std::string_view text, bool parse_special) const override {
    return tokenizer_->encode(text, {.add_special = true, .parse_special = parse_special});
  }

  Result<std::vector<TokenId>> encode_parts(std::span<const PromptPart> parts) const override {
    std::string text;
    std::vector<tokenizer::TrustedRange> trusted;
    for (const PromptPart& part : parts) {
      const size_t begin = text.size();
      text += part.text;
      if (!part.trusted || part.text.empty()) continue;
      // Neighbouring trusted parts are one range: a control token of ours may span them.
      if (!trusted.empty() && trusted.back().end == begin) {
        trusted.back().end = text.size();
      } else {
        trusted.push_back({begin, text.size()});
      }
    }
    return tokenizer_->encode_prompt(text, trusted);
  }

  Result<Branches> encode_branches(std::span<const PromptPart> head,
                                   std::span<const std::vector<PromptPart>> tails) const override {
    const std::optional<char> next = first_character(tails);
    if (head.empty() || head.back().text.empty() || !next ||
        !tokenizer_->cuts_between(head.back().text.back(), *next)) {
      return Text::encode_branches(head, tails);
    }
    // Patterns look one character ahead: the head is encoded with it, and its ids taken off.
    std::vector<PromptPart> parts(head.begin(), head.end());
    parts.push_back({std::string(1, *next), /*trusted=*/false});
    OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> before, encode_parts(parts));
    OKIBI_ASSIGN_OR_RETURN(const std::vector<TokenId> letter, encode_tail({&parts.back(), 1}));
    if (before.size() <= letter.size() ||
        !std::equal(letter.rbegin(), letter.rend(), before.rbegin())) {
      return Text::encode_branches(head, tails);  // never seen; slow, but right
    }
    before.resize(before.size() - letter.size());
    Branches branches{.n_head = before.size(), .tokens = {}};
    for (const std::vector<PromptPart>& tail : tails) {
      OKIBI_ASSIGN_OR_RETURN(const std::vector<TokenId> after, encode_tail(tail));
      branches.tokens.push_back(before);
      branches.tokens.back().insert(branches.tokens.back().end(), after.begin(), after.end());
    }
    return branches;
  }

  Result<std::vector<PromptPart>> chat_parts(std::span<const Message> messages,
                                             bool enable_thinking) const override {
    if (!layout_.ok()) return layout_.status();
    std::vector<tokenizer::ChatMessage> checked;
    checked.reserve(messages.size());
    for (const Message& message : messages) {
      OKIBI_ASSIGN_OR_RETURN(tokenizer::ChatMessage one, checked_message(message));
      checked.push_back(std::move(one));
    }
    return split_parts(tokenizer::lay_out_chat(
        *layout_, *tokenizer_, checked,
        {.add_generation_prompt = true, .enable_thinking = enable_thinking}));
  }

  Result<std::string> chat_layout() const override {
    if (!layout_.ok()) return layout_.status();
    return std::string(tokenizer::chat_layout_name(*layout_));
  }

  std::string decode(std::span<const TokenId> ids, bool show_special) const override {
    return tokenizer_->decode(ids, show_special);
  }

  std::unique_ptr<TextStream> stream(std::vector<std::string> stop_strings) const override {
    return std::make_unique<TextStreamImpl>(tokenizer_, std::move(stop_strings));
  }

  int32_t n_tokens() const override { return tokenizer_->n_tokens(); }
  bool is_end_of_generation(TokenId id) const override {
    return known(id) && tokenizer_->is_end_of_generation(id);
  }
  bool is_sampleable(TokenId id) const override {
    return known(id) && tokenizer_->is_sampleable(id);
  }
  TokenId find_by_bytes(std::string_view bytes) const override {
    return tokenizer_->find_by_bytes(bytes);
  }

 private:
  // What all tails begin with, if it is one character.
  static std::optional<char> first_character(std::span<const std::vector<PromptPart>> tails) {
    std::optional<char> first;
    for (const std::vector<PromptPart>& tail : tails) {
      if (tail.empty() || tail[0].text.empty()) return std::nullopt;
      if (first && *first != tail[0].text[0]) return std::nullopt;
      first = tail[0].text[0];
    }
    return first;
  }

  // Parts that follow others, which have the BOS.
  Result<std::vector<TokenId>> encode_tail(std::span<const PromptPart> parts) const {
    OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode_parts(parts));
    if (tokenizer_->add_bos()) ids.erase(ids.begin());
    return ids;
  }

  // The output matrix may have more rows than the vocabulary has entries.
  bool known(TokenId id) const { return id >= 0 && id < tokenizer_->n_tokens(); }

  std::shared_ptr<const Tokenizer> tokenizer_;
  Result<ChatLayout> layout_;
};

}  // namespace

std::unique_ptr<Text> make_text(std::shared_ptr<const Tokenizer> tokenizer,
                                std::string chat_layout_override) {
  return std::make_unique<TextImpl>(std::move(tokenizer), chat_layout_override);
}

}  // namespace okibi::engine
