// The pipeline of encoding (special tokens cut out, the text between them normalised, cut into
// pieces and merged) and of decoding. The parts are in the files beside this one.
#include "tokenizer/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "tokenizer/bpe.h"
#include "tokenizer/pre_table.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/spm.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace okibi::tokenizer {
namespace {

// Positions in a text fit 31 bits.
constexpr size_t kMaxTextBytes = (size_t{1} << 31) - 1;

}  // namespace

struct Tokenizer::State {
  std::string model, pre, chat_template;
  Vocabulary vocabulary;
  PreEntry rule{};
  bool nfc = false;
  std::optional<SpecialTokens> specials;
  std::optional<BytePairModel> byte_pair;
  std::optional<SentencePieceModel> sentence_piece;

  Status encode(std::string_view text, const Trust& trust, std::vector<TokenId>* out) const;

 private:
  Status encode_byte_pair(std::string_view fragment, BytePairModel::Scratch* scratch,
                          std::vector<TokenId>* out) const;
  Status encode_sentence_piece(std::string_view fragment, SentencePieceModel::Scratch* scratch,
                               std::vector<TokenId>* out) const;
};

Status Tokenizer::State::encode_byte_pair(std::string_view fragment,
                                          BytePairModel::Scratch* scratch,
                                          std::vector<TokenId>* out) const {
  Status status;
  pretokenize(rule.pattern, fragment, [&](std::string_view piece) {
    if (status.ok()) status = byte_pair->encode(piece, scratch, out);
  });
  return status;
}

Status Tokenizer::State::encode_sentence_piece(std::string_view fragment,
                                               SentencePieceModel::Scratch* scratch,
                                               std::vector<TokenId>* out) const {
  std::string text;
  text.reserve(fragment.size() + 1);
  if (vocabulary.add_space_prefix()) text += ' ';
  // The mark that stands for a space in token texts means a space in input, too.
  while (!fragment.empty()) {
    const size_t mark = std::min(fragment.find(kSentencePieceSpaceUtf8), fragment.size());
    text += fragment.substr(0, mark);
    if (mark == fragment.size()) break;
    text += ' ';
    fragment.remove_prefix(mark + kSentencePieceSpaceUtf8.size());
  }
  return sentence_piece->encode(text, scratch, out);
}

Status Tokenizer::State::encode(std::string_view text, const Trust& trust,
                                std::vector<TokenId>* out) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument(fmt::format("the text has {} bytes, at most {} can be encoded",
                                        text.size(), kMaxTextBytes));
  }
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    return invalid_argument(
        fmt::format("the text is not UTF-8: byte {} (0x{:02X}) is wrong", bad, text[bad] & 0xFF));
  }
  std::optional<BytePairModel::Scratch> pairs;
  std::optional<SentencePieceModel::Scratch> words;
  if (byte_pair) pairs.emplace(*byte_pair);
  if (sentence_piece) words.emplace(*sentence_piece);
  size_t position = 0;
  while (position < text.size()) {
    const SpecialTokens::Match match = specials->next(text, position, trust);
    std::string_view fragment = text.substr(position, match.begin - position);
    std::string normalized;
    if (nfc && needs_nfc(fragment)) fragment = normalized = normalize_nfc(fragment);
    if (!fragment.empty()) {
      OKIBI_RETURN_IF_ERROR(pairs ? encode_byte_pair(fragment, &*pairs, out)
                                  : encode_sentence_piece(fragment, &*words, out));
    }
    if (match.id != kNoToken) out->push_back(match.id);
    position = match.end;
  }
  return ok_status();
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(VocabularyData data, int normalize_nfc) {
  CharTable::get();  // made here, 15 ms once per process, and not in the first request
  auto state = std::make_unique<State>();
  bool assumed_default = false;
  if (data.model == "gpt2") {
    OKIBI_ASSIGN_OR_RETURN(state->rule, find_pre(data.pre));
    assumed_default = data.pre.empty();
    if (data.merges.empty()) {
      return bad_data("tokenizer.ggml.merges is missing: a gpt2 vocabulary needs its merge list");
    }
  } else if (data.model != "llama") {
    return unsupported(fmt::format(
        "tokenizer.ggml.model is \"{}\"; okibi knows \"gpt2\" (byte-level BPE) and \"llama\" "
        "(SentencePiece)",
        data.model.substr(0, 80)));
  }
  OKIBI_ASSIGN_OR_RETURN(state->vocabulary, Vocabulary::create(&data, state->rule.add_bos));
  Vocabulary& vocabulary = state->vocabulary;
  if (assumed_default) {
    vocabulary.warnings().push_back(
        "tokenizer.ggml.pre is missing: the split rule \"default\" is assumed");
  }
  if (data.model == "gpt2") {
    state->byte_pair.emplace(&vocabulary, data.merges, state->rule.ignore_merges);
  } else {
    OKIBI_ASSIGN_OR_RETURN(auto model, SentencePieceModel::create(vocabulary));
    state->sentence_piece.emplace(std::move(model));
  }
  state->specials.emplace(&vocabulary);
  state->nfc = normalize_nfc < 0 ? state->rule.nfc : normalize_nfc != 0;
  state->model = std::move(data.model);
  state->pre = std::move(data.pre);
  state->chat_template = std::move(data.chat_template);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(state)));
}

int32_t Tokenizer::n_tokens() const {
  return state_->vocabulary.n_tokens();
}
std::string_view Tokenizer::model() const {
  return state_->model;
}
std::string_view Tokenizer::pre() const {
  return state_->pre;
}
const std::string& Tokenizer::chat_template() const {
  return state_->chat_template;
}
TokenId Tokenizer::bos() const {
  return state_->vocabulary.bos();
}
TokenId Tokenizer::eos() const {
  return state_->vocabulary.eos();
}
TokenId Tokenizer::unk() const {
  return state_->vocabulary.unk();
}
bool Tokenizer::add_bos() const {
  return state_->vocabulary.add_bos();
}
bool Tokenizer::add_space_prefix() const {
  return state_->vocabulary.add_space_prefix();
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  std::vector<TokenId> ids;
  const bool want_bos = options.add_special && vocabulary.add_bos();
  if (want_bos) ids.push_back(vocabulary.bos());
  OKIBI_RETURN_IF_ERROR(state_->encode(text, Trust{options.parse_special, {}}, &ids));
  // Exactly one: a text that brings its own keeps that.
  if (want_bos && ids.size() > 1 && ids[1] == vocabulary.bos()) ids.erase(ids.begin());
  if (options.add_special && vocabulary.add_eos()) ids.push_back(vocabulary.eos());
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text,
                                                      std::span<const TrustedRange> trusted) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  std::vector<TrustedRange> ranges(trusted.begin(), trusted.end());
  std::sort(ranges.begin(), ranges.end(),
            [](const TrustedRange& a, const TrustedRange& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool in_text = ranges[i].begin <= ranges[i].end && ranges[i].end <= text.size();
    if (!in_text || (i > 0 && ranges[i].begin < ranges[i - 1].end)) {
      return invalid_argument(
          fmt::format("the trusted range {} to {} leaves the text of {} bytes or overlaps another",
                      ranges[i].begin, ranges[i].end, text.size()));
    }
  }
  std::vector<TokenId> ids;
  if (vocabulary.add_bos()) ids.push_back(vocabulary.bos());
  OKIBI_RETURN_IF_ERROR(state_->encode(text, Trust{false, ranges}, &ids));
  if (vocabulary.add_bos() && ids.size() > 1 && ids[1] == vocabulary.bos()) ids.erase(ids.begin());
  return ids;
}

bool Tokenizer::cuts_between(char before, char after) const {
  return state_->byte_pair && cuts_pieces_between(before, after) &&
         !state_->specials->holds_pair(before, after);
}

std::string_view Tokenizer::token_bytes(TokenId id, bool show_special) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  if (!vocabulary.contains(id)) return {};
  const TokenType type = vocabulary.type(id);
  if (type == TokenType::kControl || type == TokenType::kUnknown) {
    return show_special ? std::string_view(vocabulary.text(id)) : std::string_view();
  }
  return vocabulary.bytes(id);
}

std::string_view Tokenizer::token_text(TokenId id) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  return vocabulary.contains(id) ? std::string_view(vocabulary.text(id)) : std::string_view();
}

TokenType Tokenizer::token_type(TokenId id) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  return vocabulary.contains(id) ? vocabulary.type(id) : TokenType::kUnused;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  std::string bytes;
  for (TokenId id : ids) bytes += token_bytes(id, show_special);
  const bool strip = state_->vocabulary.add_space_prefix() && !bytes.empty() && bytes[0] == ' ';
  return replace_invalid_utf8(std::string_view(bytes).substr(strip ? 1 : 0));
}

TokenId Tokenizer::find(std::string_view text) const {
  return text.empty() ? kNoToken : state_->vocabulary.find(text);
}

TokenId Tokenizer::find_by_bytes(std::string_view bytes) const {
  return bytes.empty() ? kNoToken : state_->vocabulary.find_plain(bytes);
}

const std::vector<TokenId>& Tokenizer::end_of_generation() const {
  return state_->vocabulary.end_of_generation();
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  const std::vector<TokenId>& set = end_of_generation();
  return std::binary_search(set.begin(), set.end(), id);
}

bool Tokenizer::is_sampleable(TokenId id) const {
  return token_type(id) != TokenType::kUnused;
}

const std::vector<std::string>& Tokenizer::warnings() const {
  return state_->vocabulary.warnings();
}

}  // namespace okibi::tokenizer
