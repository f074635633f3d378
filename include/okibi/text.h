// Text preparation: tokens and chat prompts. Thread-safe; needs no engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "okibi/status.h"

namespace okibi {

using TokenId = int32_t;

// One message of a chat. Contents are data: the spelling of a control token in them is only
// letters.
struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// A piece of a prompt: `trusted` text is ours and may hold control tokens, other text may not.
struct PromptPart {
  std::string text;
  bool trusted = false;
};

// Prompts that begin alike.
struct Branches {
  size_t n_head = 0;                         // tokens that come from the head alone; 0: not known
  std::vector<std::vector<TokenId>> tokens;  // of the whole prompts
};

// Turns a stream of tokens into text that never holds half a character, and stops at stop strings.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual std::string push(TokenId id) = 0;  // text that is safe to show now
  virtual bool stopped() const = 0;          // a stop string has been completed
  virtual std::string finish() = 0;          // what was held back
};

class Text {
 public:
  virtual ~Text() = default;

  // Plain text, with BOS as the vocabulary wants it; control tokens are recognised only when asked.
  virtual Result<std::vector<TokenId>> encode(std::string_view text, bool parse_special) const = 0;
  // The parts as one text, encoded across their borders; BOS as the vocabulary wants it.
  virtual Result<std::vector<TokenId>> encode_parts(std::span<const PromptPart> parts) const = 0;
  // encode_parts of the head followed by each of the tails. The head is encoded once where no
  // token can join its last character with a tail's first, else again with every tail: the ids
  // are the same.
  virtual Result<Branches> encode_branches(std::span<const PromptPart> head,
                                           std::span<const std::vector<PromptPart>> tails) const;
  // The chat laid out as the model was trained, ending where the assistant's reply begins. Fails in
  // words when the file's template is not one that okibi lays out.
  virtual Result<std::vector<PromptPart>> chat_parts(std::span<const Message> messages,
                                                     bool enable_thinking) const = 0;
  virtual Result<std::string> chat_layout() const = 0;

  virtual std::string decode(std::span<const TokenId> ids, bool show_special) const = 0;
  virtual std::unique_ptr<TextStream> stream(std::vector<std::string> stop_strings) const = 0;

  virtual int32_t n_tokens() const = 0;
  virtual bool is_end_of_generation(TokenId id) const = 0;
  virtual bool is_sampleable(TokenId id) const = 0;
  // The normal token whose bytes are exactly these; -1 when there is none.
  virtual TokenId find_by_bytes(std::string_view bytes) const = 0;
};

inline Result<Branches> Text::encode_branches(
    std::span<const PromptPart> head, std::span<const std::vector<PromptPart>> tails) const {
  Branches branches;
  for (const std::vector<PromptPart>& tail : tails) {
    std::vector<PromptPart> parts(head.begin(), head.end());
    parts.insert(parts.end(), tail.begin(), tail.end());
    OKIBI_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode_parts(parts));
    branches.tokens.push_back(std::move(ids));
  }
  return branches;
}

}  // namespace okibi
