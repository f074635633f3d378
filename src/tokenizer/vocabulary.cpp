// Load-time checks of a vocabulary and the tables derived from it.
#include "tokenizer/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/byte_alphabet.h"

namespace okibi::tokenizer {
namespace {

constexpr size_t kMaxTokens = 4'194'304;
constexpr size_t kMaxTokenBytes = 65'535;

// A text from a file, safe to put into a message.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text.substr(0, 60)) {
    out += c >= 0x20 && c < 0x7F ? std::string(1, c) : fmt::format("\\x{:02X}", c & 0xFF);
  }
  return out + (text.size() > 60 ? "...\"" : "\"");
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte a text of the form <0xHH> names, or -1.
int named_byte(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Texts that end a reply. Converters have given the first six wrong types, so these count whatever
// their type is, and are control tokens from then on.
constexpr size_t kAlwaysControl = 6;
constexpr std::string_view kEndTexts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "</s>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<end_of_utterance>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

}  // namespace

Result<Vocabulary> Vocabulary::create(VocabularyData* data, bool add_bos_by_default) {
  Vocabulary v;
  v.model_ = data->model == "llama" ? Model::kSentencePiece : Model::kBytePair;
  OKIBI_RETURN_IF_ERROR(v.take_tokens(data));
  OKIBI_RETURN_IF_ERROR(v.build_bytes());
  v.take_special_ids(*data, add_bos_by_default);
  v.collect_end_of_generation(*data);
  return v;
}

Status Vocabulary::take_tokens(VocabularyData* data) {
  const size_t n = data->tokens.size();
  if (n < 1 || n > kMaxTokens) {
    return bad_data(
        fmt::format("tokenizer.ggml.tokens has {} entries, expected 1 to {}", n, kMaxTokens));
  }
  for (size_t i = 0; i < n; ++i) {
    if (data->tokens[i].size() > kMaxTokenBytes) {
      return bad_data(fmt::format("token {} is {} bytes long, expected at most {}", i,
                                  data->tokens[i].size(), kMaxTokenBytes));
    }
  }
  const auto check_count = [n](size_t found, const char* key) -> Status {
    if (found == 0 || found >= n) return ok_status();
    return bad_data(fmt::format("tokenizer.ggml.{} has {} entries for {} tokens", key, found, n));
  };
  OKIBI_RETURN_IF_ERROR(check_count(data->types.size(), "token_type"));
  OKIBI_RETURN_IF_ERROR(check_count(data->scores.size(), "scores"));
  tokens_ = std::move(data->tokens);

  types_.assign(n, TokenType::kNormal);
  for (size_t i = 0; i < n && i < data->types.size(); ++i) {
    const int32_t type = data->types[i];
    types_[i] = type >= 1 && type <= 6 ? static_cast<TokenType>(type) : TokenType::kUndefined;
  }
  if (model_ == Model::kSentencePiece) {
    if (data->scores.empty()) {
      return bad_data("tokenizer.ggml.scores is missing: a llama vocabulary merges by score");
    }
    scores_ = std::move(data->scores);
    scores_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      if (std::isnan(scores_[i])) {
        return bad_data(
            fmt::format("tokenizer.ggml.scores: the score of token {} is no number", i));
      }
      // Old files have no types; a spelled-out byte must still not be matched as text.
      if (data->types.empty() && named_byte(tokens_[i]) >= 0) types_[i] = TokenType::kByte;
    }
  }
  for (size_t k = 0; k < kAlwaysControl; ++k) {
    for (size_t i = 0; i < n; ++i) {
      if (tokens_[i] == kEndTexts[k]) types_[i] = TokenType::kControl;
    }
  }
  return ok_status();
}

Status Vocabulary::append_token_bytes(TokenId id, bool* is_pure) {
  const std::string& text = tokens_[static_cast<size_t>(id)];
  *is_pure = false;
  switch (type(id)) {
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUnused:
      return ok_status();
    case TokenType::kUserDefined:
      arena_ += text;
      return ok_status();
    case TokenType::kByte: {
      const int byte = named_byte(text);
      if (byte < 0) {
        return bad_data(fmt::format("token {} is a byte token with the text {}, expected <0xHH>",
                                    id, quoted(text)));
      }
      arena_ += static_cast<char>(byte);
      TokenId& slot = byte_tokens_[static_cast<size_t>(byte)];
      if (slot == kNoToken) slot = id;
      return ok_status();
    }
    case TokenType::kNormal:
    case TokenType::kUndefined:
      break;
  }
  if (model_ == Model::kBytePair) {
    *is_pure = kByteAlphabet.append_bytes(text, &arena_);
    return ok_status();
  }
  // A stored space would look like the mark that stands for one; such a token is never matched.
  *is_pure = text.find(' ') == std::string::npos;
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, kSentencePieceSpaceUtf8.size(), kSentencePieceSpaceUtf8) == 0) {
      arena_ += ' ';
      i += kSentencePieceSpaceUtf8.size();
    } else {
      arena_ += text[i++];
    }
  }
  return ok_status();
}

Status Vocabulary::build_bytes() {
  byte_tokens_.fill(kNoToken);
  offsets_.reserve(tokens_.size() + 1);
  std::vector<bool> is_pure(tokens_.size());
  for (TokenId id = 0; id < n_tokens(); ++id) {
    offsets_.push_back(arena_.size());
    bool pure = false;
    OKIBI_RETURN_IF_ERROR(append_token_bytes(id, &pure));
    is_pure[static_cast<size_t>(id)] = pure;
  }
  offsets_.push_back(arena_.size());
  arena_.shrink_to_fit();
  index_tokens(is_pure);

  int n_missing = 0;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const bool has = model_ == Model::kBytePair ? find_plain({&byte, 1}) != kNoToken
                                                : byte_tokens_[static_cast<size_t>(b)] != kNoToken;
    n_missing += has ? 0 : 1;
  }
  if (n_missing > 0) {
    warnings_.push_back(fmt::format(
        "{} of 256 bytes have no token of their own: some text may not be encodable", n_missing));
  }
  return ok_status();
}

void Vocabulary::index_tokens(const std::vector<bool>& is_pure) {
  by_text_.reserve(tokens_.size());
  by_bytes_.reserve(tokens_.size());
  int64_t n_duplicates = 0;
  for (TokenId id = 0; id < n_tokens(); ++id) {
    if (text(id).empty()) continue;
    const TokenId first =
        by_text_.insert(text(id), id, [this](TokenId other) { return text_view(other); });
    if (first != id) ++n_duplicates;
    if (is_pure[static_cast<size_t>(id)] && is_plain(id)) {
      by_bytes_.insert(bytes(id), id, [this](TokenId other) { return this->bytes(other); });
    }
  }
  if (n_duplicates > 0) {
    warnings_.push_back(fmt::format(
        "{} tokens repeat the text of an earlier one; text is encoded with the lowest id",
        n_duplicates));
  }
}

TokenId Vocabulary::checked_id(int64_t id, const char* name) {
  if (id < 0) return kNoToken;
  if (id < n_tokens()) return static_cast<TokenId>(id);
  warnings_.push_back(fmt::format(
      "tokenizer.ggml.{}_token_id is {}, but there are {} tokens: ignored", name, id, n_tokens()));
  return kNoToken;
}

void Vocabulary::take_special_ids(const VocabularyData& data, bool add_bos_by_default) {
  const bool spm = model_ == Model::kSentencePiece;
  bos_ = checked_id(data.bos >= 0 || !spm ? data.bos : 1, "bos");
  eos_ = checked_id(data.eos >= 0 || !spm ? data.eos : 2, "eos");
  unk_ = checked_id(data.unk >= 0 || !spm ? data.unk : 0, "unknown");
  add_bos_ = data.add_bos >= 0 ? data.add_bos != 0 : spm || add_bos_by_default;
  add_eos_ = data.add_eos > 0;
  add_space_prefix_ = spm && data.add_space_prefix != 0;
  if (add_bos_ && bos_ == kNoToken) {
    add_bos_ = false;
    warnings_.push_back("the vocabulary asks for a BOS token but names none: none is added");
  }
  if (add_eos_ && eos_ == kNoToken) {
    add_eos_ = false;
    warnings_.push_back("the vocabulary asks for an EOS token but names none: none is added");
  }
}

void Vocabulary::collect_end_of_generation(const VocabularyData& data) {
  std::vector<TokenId>& set = end_of_generation_;
  set = {eos_,
         checked_id(data.eot, "eot"),
         checked_id(data.eom, "eom"),
         checked_id(data.fim_pad, "fim_pad"),
         checked_id(data.fim_rep, "fim_rep"),
         checked_id(data.fim_sep, "fim_sep")};
  // A word that a user may type must not stop a reply: only special types count.
  const auto special = [this](std::string_view text) {
    const TokenId id = find(text);
    if (id == kNoToken) return kNoToken;
    const TokenType t = type(id);
    const bool counts =
        t == TokenType::kControl || t == TokenType::kUserDefined || t == TokenType::kUnknown;
    return counts ? id : kNoToken;
  };
  for (std::string_view text : kEndTexts) set.push_back(special(text));
  const auto drop = [&](std::string_view text) {
    set.erase(std::remove(set.begin(), set.end(), find(text)), set.end());
  };
  // Harmony and Solar go on after <|end|>; Gemma 4 goes on after </s>.
  const auto have = [&](std::string_view a, std::string_view b) {
    return special(a) != kNoToken && special(b) != kNoToken;
  };
  if (have("<|return|>", "<|call|>") || have("<|calls|>", "<|flush|>")) drop("<|end|>");
  if (special("<|tool_response>") != kNoToken) drop("</s>");
  set.erase(std::remove(set.begin(), set.end(), kNoToken), set.end());
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
}

}  // namespace okibi::tokenizer
