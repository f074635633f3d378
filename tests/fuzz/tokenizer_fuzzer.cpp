// Fuzzes the tokenizer two ways at once: a vocabulary built from the first half of the input, and
// the second half as text for it and for a fixed byte-level vocabulary. Nothing may crash or hang,
// and the fixed one must give every text back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/chat_layout.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace okibi;
using namespace okibi::tokenizer;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "tokenizer_fuzzer: %s\n", what);
  std::abort();
}

constexpr const char* kPres[] = {
    "gpt-2",       "llama-bpe", "qwen2",      "qwen35",     "tekken",         "gpt-4o",
    "smollm",      "falcon",    "default",    "bloom",      "deepseek-coder", "deepseek-llm",
    "deepseek-v3", "viking",    "bailingmoe", "seed-coder", "minicpm5",       "tiny_aya",
    "exaone-moe",  "laguna",    "ufakzeka",
};

// Every byte, some merges, a control token and a user-defined one.
std::shared_ptr<const Tokenizer> fixed_tokenizer(size_t pre) {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = kPres[pre];
  const auto add = [&data](const std::string& text, TokenType type) {
    data.tokens.push_back(text);
    data.types.push_back(static_cast<int32_t>(type));
  };
  for (int b = 0; b < 256; ++b) {
    std::string text;
    append_utf8(&text, kByteAlphabet.code_point(static_cast<uint8_t>(b)));
    add(text, TokenType::kNormal);
  }
  for (const char* merge : {"a b", "b a", "ab ab", "\xC4\xA0 a", "a a", "aa aa"}) {
    data.merges.push_back(merge);
    std::string joined(merge);
    joined.erase(joined.find(' '), 1);
    add(joined, TokenType::kNormal);
  }
  add("<|im_end|>", TokenType::kControl);
  add("<|im_start|>", TokenType::kControl);
  add("word", TokenType::kUserDefined);
  auto tokenizer = Tokenizer::create(std::move(data), 0);
  require(tokenizer.ok(), "the fixed vocabulary is refused");
  return *tokenizer;
}

void check_fixed(size_t pre, const std::string& text) {
  static std::shared_ptr<const Tokenizer> tokenizers[std::size(kPres)];
  auto& tokenizer = tokenizers[pre];
  if (tokenizer == nullptr) tokenizer = fixed_tokenizer(pre);
  const auto ids = tokenizer->encode(text, {});
  require(ids.ok(), "well-formed text is refused");
  require(tokenizer->decode(*ids) == text, "decoding gives another text");
  StreamDecoder stream(*tokenizer, {"stop", "\n\n"});
  std::string shown;
  for (TokenId id : *ids) {
    require(tokenizer->token_type(id) != TokenType::kControl, "data became a control token");
    shown += stream.push(id);
  }
  shown += stream.finish();
  require(text.starts_with(shown), "the stream shows another text");
  require(stream.stopped() || shown == text, "the stream lost text");

  const size_t third = text.size() / 3;
  const std::vector<TrustedRange> trusted = {{0, third}, {2 * third, text.size()}};
  const auto prompt = tokenizer->encode_prompt(text, trusted);
  require(prompt.ok() && tokenizer->decode(*prompt, true) == text, "a prompt lost text");

  const std::vector<ChatMessage> messages = {{Role::kSystem, text}, {Role::kAssistant, text}};
  const auto layout = static_cast<ChatLayout>(pre % 9);
  const ChatPrompt chat = lay_out_chat(layout, *tokenizer, messages, {});
  require(tokenizer->encode_prompt(chat.text, chat.trusted).ok(), "a chat prompt is refused");
}

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::string text(size_t n) {
    n = std::min(n, size_ - at_);
    at_ += n;
    return std::string(reinterpret_cast<const char*>(data_ + at_ - n), n);
  }
  bool done() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

void check_hostile(Reader in, const std::string& text) {
  VocabularyData data;
  const uint8_t flags = in.byte();
  data.model = flags & 1 ? "llama" : "gpt2";
  data.pre = kPres[in.byte() % std::size(kPres)];
  data.bos = static_cast<int8_t>(in.byte());
  data.eos = static_cast<int8_t>(in.byte());
  data.unk = static_cast<int8_t>(in.byte());
  data.add_bos = flags & 2 ? 1 : -1;
  data.add_space_prefix = flags & 4 ? 1 : 0;
  while (!in.done()) {
    const uint8_t kind = in.byte();
    const std::string piece = in.text(kind >> 4);
    if (kind & 8) {
      data.merges.push_back(piece);
    } else {
      data.tokens.push_back(piece);
      data.types.push_back(kind & 7);
      data.scores.push_back(static_cast<float>(static_cast<int8_t>(kind)));
    }
  }
  data.chat_template = text;
  const auto tokenizer = Tokenizer::create(std::move(data));
  if (!tokenizer.ok()) {
    require(!tokenizer.status().message().empty(), "an error without words");
    return;
  }
  const auto ids = (*tokenizer)->encode(text, {.add_special = true, .parse_special = true});
  if (ids.ok()) (void)(*tokenizer)->decode(*ids, true);
  const auto layout = recognize_chat_layout(**tokenizer);
  require(layout.ok() || !layout.status().message().empty(), "an error without words");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t half = (size - 1) / 2;
  const std::string text = replace_invalid_utf8(
      std::string_view(reinterpret_cast<const char*>(data + 1 + half), size - 1 - half));
  check_fixed(data[0] % std::size(kPres), text);
  check_hostile(Reader(data + 1, half), text);
  return 0;
}
