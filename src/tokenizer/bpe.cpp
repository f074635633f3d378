// See bpe.h.
#include "tokenizer/bpe.h"

#include <fmt/core.h>

#include "tokenizer/byte_alphabet.h"

namespace okibi::tokenizer {
namespace {

constexpr uint32_t kNoSymbol = 0xFFFFFFFF;

}  // namespace

BytePairModel::BytePairModel(Vocabulary* vocabulary, const std::vector<std::string>& merges,
                             bool ignore_merges)
    : vocabulary_(*vocabulary), ignore_merges_(ignore_merges) {
  const auto n = static_cast<size_t>(vocabulary->n_tokens());
  for (uint32_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const TokenId id = vocabulary->find_plain({&byte, 1});
    byte_symbols_[b] = id == kNoToken ? static_cast<uint32_t>(n) + b : static_cast<uint32_t>(id);
  }
  reached_ = std::make_unique<std::atomic<uint8_t>[]>(n);
  read_merges(vocabulary, merges);
}

uint32_t BytePairModel::symbol_of(std::string_view bytes) const {
  if (bytes.size() == 1) return byte_symbols_[static_cast<uint8_t>(bytes[0])];
  const TokenId id = vocabulary_.find_plain(bytes);
  return id == kNoToken ? kNoSymbol : static_cast<uint32_t>(id);
}

void BytePairModel::read_merges(Vocabulary* vocabulary, const std::vector<std::string>& merges) {
  merges_.reserve(merges.size());
  size_t n_skipped = 0;
  std::string bytes;
  for (size_t rank = 0; rank < merges.size() && rank < kNoRank; ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);  // a space at 0 belongs to the left part
    bytes.clear();
    bool good = space != std::string_view::npos && space + 1 < merge.size();
    size_t n_left = 0;
    if (good) {
      good = kByteAlphabet.append_bytes(merge.substr(0, space), &bytes);
      n_left = bytes.size();
      good = kByteAlphabet.append_bytes(merge.substr(space + 1), &bytes) && good;
    }
    if (!good) {
      ++n_skipped;
      continue;
    }
    const std::string_view joined = bytes;
    const uint32_t left = symbol_of(joined.substr(0, n_left));
    const uint32_t right = symbol_of(joined.substr(n_left));
    const uint32_t result = symbol_of(joined);
    if (left == kNoSymbol || right == kNoSymbol || result == kNoSymbol) {
      ++n_skipped;
      continue;
    }
    merges_.insert(left, right, {static_cast<uint32_t>(rank), result});
  }
  if (n_skipped > 0) {
    vocabulary->warnings().push_back(fmt::format(
        "{} of {} merges do not join two tokens into a third: skipped", n_skipped, merges.size()));
  }
}

Status BytePairModel::encode(std::string_view piece, Scratch* scratch,
                             std::vector<TokenId>* out) const {
  const TokenId whole = vocabulary_.find_plain(piece);
  std::atomic<uint8_t>* reached = nullptr;
  if (whole != kNoToken) {
    reached = &reached_[static_cast<size_t>(whole)];
    if (ignore_merges_ || reached->load(std::memory_order_relaxed) == kYes) {
      out->push_back(whole);
      return ok_status();
    }
  }
  std::vector<uint32_t>& symbols = scratch->symbols;
  symbols.clear();
  for (char c : piece) symbols.push_back(byte_symbols_[static_cast<uint8_t>(c)]);
  scratch->merger.run(&symbols);
  if (reached != nullptr) {
    const bool yes = symbols.size() == 1 && symbols[0] == static_cast<uint32_t>(whole);
    reached->store(yes ? kYes : kNo, std::memory_order_relaxed);
  }
  const auto n = static_cast<uint32_t>(vocabulary_.n_tokens());
  for (uint32_t symbol : symbols) {
    if (symbol < n) {
      out->push_back(static_cast<TokenId>(symbol));
    } else if (vocabulary_.byte_token(static_cast<uint8_t>(symbol - n)) != kNoToken) {
      out->push_back(vocabulary_.byte_token(static_cast<uint8_t>(symbol - n)));
    } else if (vocabulary_.unk() != kNoToken) {
      out->push_back(vocabulary_.unk());
    } else {
      return bad_data(fmt::format(
          "the vocabulary has no token for the byte 0x{:02X}, and none for unknown text",
          symbol - n));
    }
  }
  return ok_status();
}

}  // namespace okibi::tokenizer
