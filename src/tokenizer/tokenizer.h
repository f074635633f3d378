// Text to token ids and back, exactly as a model was trained. Immutable after construction and safe
// to use from many threads at once. Knows nothing of files: model/vocabulary.h fills VocabularyData
// from GGUF keys.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"

namespace okibi::tokenizer {

using TokenId = int32_t;
constexpr TokenId kNoToken = -1;

enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// What the keys of a file say, unchecked (Tokenizer::create checks).
struct VocabularyData {
  std::string model;  // tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;    // tokenizer.ggml.pre
  std::vector<std::string> tokens;
  std::vector<float> scores;   // empty or >= n
  std::vector<int32_t> types;  // empty or >= n
  std::vector<std::string> merges;
  int64_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  int64_t fim_pad = -1, fim_rep = -1, fim_sep = -1;
  int add_bos = -1, add_eos = -1, add_space_prefix = -1;  // -1: the key is absent
  std::string chat_template;                              // empty: none
};

struct EncodeOptions {
  bool add_special = true;     // BOS / EOS as the vocabulary wants them
  bool parse_special = false;  // control tokens in the text are recognised everywhere
};

// A byte range of a text that may hold control tokens; text outside every range is data, in which
// the spelling of a control token is only letters.
struct TrustedRange {
  size_t begin = 0, end = 0;
};

class Tokenizer {
 public:
  // `normalize_nfc`: -1 = as the `pre` wants it (on for qwen2 and qwen35), 0 = off, 1 = on.
  static Result<std::shared_ptr<const Tokenizer>> create(VocabularyData data,
                                                         int normalize_nfc = -1);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  int32_t n_tokens() const;
  std::string_view model() const;
  std::string_view pre() const;
  const std::string& chat_template() const;

  // `text` must be UTF-8 (an error names the first bad byte; replace_invalid_utf8 mends raw files).
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options) const;
  // Control tokens are recognised only where their whole span lies in one trusted range; the rest
  // of the text is encoded across the borders, as the reference tokenizers would see it.
  // BOS is added when the vocabulary wants it and the text does not begin with it already.
  Result<std::vector<TokenId>> encode_prompt(std::string_view text,
                                             std::span<const TrustedRange> trusted) const;

  // Whether text is always cut where these two characters meet: whatever follows them, the ids of
  // what stands before are the same, and whatever stood before, those from `after` on. False where
  // that is not known.
  bool cuts_between(char before, char after) const;

  // Bytes of one token; control tokens give nothing unless show_special.
  std::string_view token_bytes(TokenId id, bool show_special = false) const;
  // The stored text of a token, as the vocabulary writes it.
  std::string_view token_text(TokenId id) const;
  TokenType token_type(TokenId id) const;
  // All of a sequence; invalid UTF-8 becomes U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool show_special = false) const;
  // The id of a token given by its exact stored text, of any type; kNoToken when there is none.
  TokenId find(std::string_view text) const;
  // The id of the normal token whose bytes are exactly `bytes`; kNoToken when there is none.
  TokenId find_by_bytes(std::string_view bytes) const;

  TokenId bos() const;
  TokenId eos() const;
  TokenId unk() const;
  bool add_bos() const;
  // Whole texts begin with a space that decoding takes away again (see StreamDecoder).
  bool add_space_prefix() const;
  // Tokens that end a reply.
  const std::vector<TokenId>& end_of_generation() const;
  bool is_end_of_generation(TokenId id) const;
  // Ids that must never be sampled: unused ones.
  bool is_sampleable(TokenId id) const;

  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Each maximal bad sequence becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
// Index of the first byte that is not part of well-formed UTF-8; npos when all is well.
size_t find_invalid_utf8(std::string_view text);

}  // namespace okibi::tokenizer
