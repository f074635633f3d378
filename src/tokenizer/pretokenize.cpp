// The scanners of pretokenize.h. A stage cuts one piece into smaller ones and hands them to the
// next stage; most patterns have a single stage. A matcher looks at one position and says where
// the match that begins there ends (the position itself: no match), as a leftmost regular
// expression with ordered alternatives would.
#include "tokenizer/pretokenize.h"

#include <span>

#include "tokenizer/unicode.h"

namespace okibi::tokenizer {
namespace {

struct Char {
  uint32_t cp;
  uint16_t cls;
  uint8_t n_bytes;

  bool is(uint16_t mask) const { return (cls & mask) != 0; }
};

// The text of one piece; matchers must not look beyond it, since the patterns did not.
struct Text {
  const char* end;
  const CharTable& table;

  Char at(const char* p) const {
    if (p >= end) return {0, kClsEnd, 0};
    int n = 0;
    const uint32_t cp = decode_valid(p, &n);
    return {cp, table[cp], static_cast<uint8_t>(n)};
  }
  // End of the run of characters in `mask` that begins at p.
  const char* run(const char* p, uint16_t mask) const {
    for (Char c = at(p); c.is(mask); c = at(p)) p += c.n_bytes;
    return p;
  }
  // End of the run of characters that are in none of `mask`.
  const char* run_outside(const char* p, uint16_t mask) const {
    for (Char c = at(p); !c.is(mask | kClsEnd); c = at(p)) p += c.n_bytes;
    return p;
  }
};

struct Sink;
using Stage = void (*)(const char* begin, const Text& text, const Sink& sink);

struct Sink {
  std::span<const Stage> rest;
  EmitPiece emit;
  void* context;

  void operator()(const char* begin, const char* end, const CharTable& table) const {
    if (begin == end) return;
    if (rest.empty()) {
      emit(context, std::string_view(begin, static_cast<size_t>(end - begin)));
    } else {
      rest.front()(begin, Text{end, table}, Sink{rest.subspan(1), emit, context});
    }
  }
};

using Matcher = const char* (*)(const char* p, const Text& text);

// A stage from a matcher: matches become pieces, and so does what lies between them.
template <Matcher match>
void split_by(const char* p, const Text& text, const Sink& sink) {
  const char* gap = p;
  while (p < text.end) {
    const char* const stop = match(p, text);
    if (stop == p) {
      p += text.at(p).n_bytes;
      continue;
    }
    sink(gap, p, text.table);
    sink(p, stop, text.table);
    gap = p = stop;
  }
  sink(gap, p, text.table);
}

// --- Parts that several patterns share.

// 's 't 're 've 'm 'll 'd; `p` stands after the apostrophe. U+017F folds to s.
template <bool kAnyCase>
const char* contraction(const char* p, const Text& text) {
  const auto lower = [](uint32_t cp) -> uint32_t {
    if (!kAnyCase) return cp;
    if (cp == 0x17F) return 's';
    return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
  };
  const Char first = text.at(p);
  const uint32_t a = lower(first.cp);
  if (first.n_bytes == 0) return nullptr;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + first.n_bytes;
  const uint32_t b = lower(text.at(p + first.n_bytes).cp);
  if ((b == 'e' && (a == 'r' || a == 'v')) || (b == 'l' && a == 'l')) return p + 2;
  return nullptr;
}

// \s+(?!\S)|\s+ at a space: the whole run if the text ends with it, else all but its last
// character, which goes with the next word.
const char* spaces_before_word(const char* p, const Text& text) {
  const char* last = p;
  const char* q = p;
  for (Char c = text.at(q); c.is(kClsSpace); c = text.at(q)) {
    last = q;
    q += c.n_bytes;
  }
  return q == text.end || last == p ? q : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
const char* spaces_with_newlines(const char* p, const Text& text) {
  const char* after_newline = nullptr;
  const char* q = p;
  for (Char c = text.at(q); c.is(kClsSpace); c = text.at(q)) {
    q += c.n_bytes;
    if (c.is(kClsNewline)) after_newline = q;
  }
  return after_newline != nullptr ? after_newline : spaces_before_word(p, text);
}

const char* digits_up_to(const char* p, const Text& text, int limit) {
  for (Char c = text.at(p); limit > 0 && c.is(kClsNumber); c = text.at(p), --limit) {
    p += c.n_bytes;
  }
  return p;
}

// What may follow a run of symbols in the same piece.
enum class Tail { kNone, kNewlines, kNewlinesAndSlashes, kOneNewlineOrSlash };

template <Tail kTail>
const char* symbol_tail(const char* p, const Text& text) {
  if constexpr (kTail == Tail::kNone) return p;
  while (true) {
    const Char c = text.at(p);
    const bool slash = kTail != Tail::kNewlines && c.cp == '/' && c.n_bytes == 1;
    if (!c.is(kClsNewline) && !slash) return p;
    p += c.n_bytes;
    if constexpr (kTail == Tail::kOneNewlineOrSlash) return p;
  }
}

// " ?[^ outside ]+" and its tail; `outside` holds the spaces.
template <uint16_t kOutside, Tail kTail>
const char* symbols(const char* p, const Char& first, const Text& text) {
  const char* const begin = first.cp == ' ' && first.n_bytes == 1 ? p + 1 : p;
  const char* const stop = text.run_outside(begin, kOutside);
  return stop == begin ? p : symbol_tail<kTail>(stop, text);
}

// --- LLAMA3 and its relatives.

struct Family {
  uint16_t word = kClsLetter;  // what words are made of
  int n_digits = 1;
  bool contractions = true;
  Tail tail = Tail::kNewlines;
  bool phrases = false;  // letters with marks, joined over single spaces
};

// One letter with its marks after another, a single space allowed between: `p` at a letter.
const char* phrase(const char* p, const Text& text) {
  while (true) {
    p += text.at(p).n_bytes;
    p = text.run(p, kClsMark);
    const Char c = text.at(p);
    if (c.is(kClsLetter)) continue;
    if (c.cp != ' ' || c.n_bytes != 1 || !text.at(p + 1).is(kClsLetter)) return p;
    ++p;
  }
}

template <Family kFamily>
const char* match_family(const char* p, const Text& text) {
  constexpr uint16_t kWord = kFamily.word;
  const Char c = text.at(p);
  if (kFamily.contractions && c.cp == '\'') {
    if (const char* stop = contraction<true>(p + 1, text)) return stop;
  }
  const auto word = [&](const char* q) {
    return kFamily.phrases ? phrase(q, text) : text.run(q, kWord);
  };
  if (c.is(kWord)) return word(p);
  if (!c.is(kClsNewline | kClsLetter | kClsNumber) && text.at(p + c.n_bytes).is(kWord)) {
    return word(p + c.n_bytes);
  }
  if (c.is(kClsNumber)) return digits_up_to(p, text, kFamily.n_digits);
  constexpr uint16_t kOutside = kClsSpace | kWord | kClsNumber;
  const char* const stop = symbols<kOutside, kFamily.tail>(p, c, text);
  return stop != p ? stop : spaces_with_newlines(p, text);
}

constexpr Family kLlama3 = {.n_digits = 3};
constexpr Family kQwen2 = {};
constexpr Family kQwen2NoContractions = {.contractions = false};
constexpr Family kQwen35 = {.word = kClsLetter | kClsMark};
constexpr Family kSeed = {.tail = Tail::kNone};
constexpr Family kMiniCpm = {.n_digits = INT32_MAX};
constexpr Family kExaMoe = {.tail = Tail::kOneNewlineOrSlash, .phrases = true};

// --- GPT2.

const char* match_gpt2(const char* p, const Text& text) {
  const Char c = text.at(p);
  if (c.cp == '\'') {
    if (const char* stop = contraction<false>(p + 1, text)) return stop;
  }
  const char* const begin = c.cp == ' ' && c.n_bytes == 1 ? p + 1 : p;
  const Char first = text.at(begin);
  if (first.is(kClsLetter)) return text.run(begin, kClsLetter);
  if (first.is(kClsNumber)) return text.run(begin, kClsNumber);
  if (!first.is(kClsSpace | kClsEnd)) {
    return text.run_outside(begin, kClsSpace | kClsLetter | kClsNumber);
  }
  return spaces_before_word(p, text);
}

// --- TEKKEN and GPT4O: words break where lower case meets upper case.

// U*L+ from p, where U = upper or uncased, L = lower or uncased; p itself: no match. The greedy U*
// gives characters back only until it stands on one that is also L.
const char* upper_then_lower(const char* p, const Text& text) {
  const char* after_both = nullptr;
  const char* q = p;
  for (Char c = text.at(q); c.is(kClsUpper); c = text.at(q)) {
    q += c.n_bytes;
    if (c.is(kClsLower)) after_both = q;
  }
  const char* const stop = text.run(q, kClsLower);
  if (stop != q) return stop;
  return after_both != nullptr ? after_both : p;
}

const char* upper_run_then_lower(const char* p, const Text& text) {
  const char* const q = text.run(p, kClsUpper);
  return q == p ? p : text.run(q, kClsLower);
}

// The two word alternatives, each with and without its optional leading character.
const char* cased_word(const char* p, const Char& c, const Text& text) {
  const bool may_lead = !c.is(kClsNewline | kClsLetter | kClsNumber);
  const char* const inner = p + c.n_bytes;
  const char* stop = inner;
  if (may_lead && (stop = upper_then_lower(inner, text)) != inner) return stop;
  if ((stop = upper_then_lower(p, text)) != p) return stop;
  if (may_lead && (stop = upper_run_then_lower(inner, text)) != inner) return stop;
  return upper_run_then_lower(p, text);
}

template <bool kContractions, int kDigits>
const char* match_cased(const char* p, const Text& text) {
  const Char c = text.at(p);
  if (const char* stop = cased_word(p, c, text); stop != p) {
    if (kContractions && text.at(stop).cp == '\'') {
      if (const char* longer = contraction<true>(stop + 1, text)) return longer;
    }
    return stop;
  }
  if (c.is(kClsNumber)) return digits_up_to(p, text, kDigits);
  constexpr uint16_t kOutside = kClsSpace | kClsLetter | kClsNumber;
  const char* const stop = symbols<kOutside, Tail::kNewlinesAndSlashes>(p, c, text);
  return stop != p ? stop : spaces_with_newlines(p, text);
}

// --- Stages of the patterns that have several.

template <int kLimit>
const char* match_digits(const char* p, const Text& text) {
  return digits_up_to(p, text, kLimit);
}

// [0-9][0-9][0-9]
const char* match_three_ascii_digits(const char* p, const Text& text) {
  if (text.end - p < 3) return p;
  for (int i = 0; i < 3; ++i) {
    if (p[i] < '0' || p[i] > '9') return p;
  }
  return p + 3;
}

template <bool kBacktick>
const char* match_punctuation(const char* p, const Text& text) {
  while (true) {
    const Char c = text.at(p);
    const bool listed = c.cp == '$' || c.cp == '+' || c.cp == '<' || c.cp == '=' || c.cp == '>' ||
                        c.cp == '^' || c.cp == '~' || c.cp == '|' || (kBacktick && c.cp == '`');
    if (!listed && !c.is(kClsPunct)) return p;
    p += c.n_bytes;
  }
}

const char* match_newline(const char* p, const Text& text) {
  const Char c = text.at(p);
  return c.is(kClsNewline) ? p + c.n_bytes : p;
}

// \s?X+
template <uint16_t kMask>
const char* match_spaced_run(const char* p, const Text& text) {
  const Char c = text.at(p);
  const char* const begin = c.is(kClsSpace) ? p + c.n_bytes : p;
  const char* const stop = text.run(begin, kMask);
  return stop == begin ? p : stop;
}

bool is_dsllm_punctuation(uint32_t cp) {
  const auto in = [cp](uint32_t a, uint32_t b) { return cp >= a && cp <= b; };
  return in('!', '/') || in(':', '~') || in(0xFF01, 0xFF0F) || in(0xFF1A, 0xFF5E) ||
         in(0x2018, 0x201F) || in(0x3000, 0x3002);
}

// The listed characters hold U+3000, which is also a space: a run that begins with one may spend
// it as the optional space or, when nothing listed follows, as the run itself.
const char* match_dsllm_punctuation(const char* p, const Text& text) {
  const Char c = text.at(p);
  const auto run = [&text](const char* q) {
    for (Char d = text.at(q); d.n_bytes != 0 && is_dsllm_punctuation(d.cp); d = text.at(q)) {
      q += d.n_bytes;
    }
    return q;
  };
  if (c.is(kClsSpace)) {
    const char* const begin = p + c.n_bytes;
    if (const char* stop = run(begin); stop != begin) return stop;
  }
  return run(p);
}

// U+0800 to U+9FA5 and the Hangul syllables: the pattern's second range runs backwards from what
// its author meant, and the vocabulary was trained with that.
const char* match_cjk(const char* p, const Text& text) {
  while (true) {
    const Char c = text.at(p);
    const bool in = (c.cp >= 0x800 && c.cp <= 0x9FA5) || (c.cp >= 0xAC00 && c.cp <= 0xD7FF);
    if (!in) return p;
    p += c.n_bytes;
  }
}

// Han and kana of deepseek-v3.
const char* match_han_kana(const char* p, const Text& text) {
  while (true) {
    const Char c = text.at(p);
    const bool in = (c.cp >= 0x4E00 && c.cp <= 0x9FA5) || (c.cp >= 0x3040 && c.cp <= 0x30FF);
    if (!in) return p;
    p += c.n_bytes;
  }
}

bool is_ascii_letter(uint32_t cp) {
  return (cp | 32) >= 'a' && (cp | 32) <= 'z' && cp < 128;
}

const char* match_dsv3_words(const char* p, const Text& text) {
  constexpr uint16_t kWord = kClsLetter | kClsMark;
  const Char c = text.at(p);
  const char* const inner = p + c.n_bytes;
  if (c.cp < 128 && c.is(kClsPunct | kClsSymbol) && is_ascii_letter(text.at(inner).cp)) {
    const char* q = inner;
    while (is_ascii_letter(text.at(q).cp)) ++q;
    return q;
  }
  if (c.is(kWord)) return text.run(p, kWord);
  if (!c.is(kClsNewline | kClsLetter | kClsPunct | kClsSymbol) && text.at(inner).is(kWord)) {
    return text.run(inner, kWord);
  }
  const char* const begin = c.cp == ' ' ? p + 1 : p;
  if (const char* stop = text.run(begin, kClsPunct | kClsSymbol); stop != begin) {
    return symbol_tail<Tail::kNewlines>(stop, text);
  }
  return c.is(kClsSpace) ? spaces_with_newlines(p, text) : p;
}

bool ends_bloom_word(const Char& c) {
  if (c.is(kClsSpace | kClsEnd)) return true;
  switch (c.cp) {
    case '(':
    case ')':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x964:
    case 0x6D4:
    case 0x60C:
      return true;
    default:
      return false;
  }
}

const char* match_bloom(const char* p, const Text& text) {
  const Char c = text.at(p);
  const char* const begin = c.cp == ' ' ? p + 1 : p;
  const char* q = begin;
  for (Char d = text.at(q); !ends_bloom_word(d); d = text.at(q)) q += d.n_bytes;
  return q == begin ? p : q;
}

// [^\n]+|[\n]+
const char* match_lines(const char* p, const Text& text) {
  const bool newline = *p == '\n';
  while (p < text.end && (*p == '\n') == newline) ++p;
  return p;
}

// \s+$: the spaces at the end of the piece.
void split_trailing_spaces(const char* p, const Text& text, const Sink& sink) {
  const char* spaces = p;
  for (const char* q = p; q < text.end;) {
    const Char c = text.at(q);
    q += c.n_bytes;
    if (!c.is(kClsSpace)) spaces = q;
  }
  sink(p, spaces, text.table);
  sink(spaces, text.end, text.table);
}

// \d{1,3}(?=(?:\d{3})*\b): a run of digits that ends at a word border is cut in threes from the
// right; any other run is left alone.
void split_digits_from_right(const char* p, const Text& text, const Sink& sink) {
  const char* gap = p;
  while (p < text.end) {
    if (!text.at(p).is(kClsDigit)) {
      p += text.at(p).n_bytes;
      continue;
    }
    size_t n = 0;
    const char* stop = p;
    for (Char c = text.at(stop); c.is(kClsDigit); c = text.at(stop), ++n) stop += c.n_bytes;
    const Char next = text.at(stop);
    if (next.is(kClsLetter | kClsNumber) || next.cp == '_') {
      p = stop;
      continue;
    }
    sink(gap, p, text.table);
    while (p < stop) {
      const char* q = p;
      for (size_t take = n % 3 == 0 ? 3 : n % 3; take > 0; --take, --n) q += text.at(q).n_bytes;
      sink(p, q, text.table);
      p = q;
    }
    gap = p;
  }
  sink(gap, p, text.table);
}

// --- The patterns as lists of stages.

constexpr Stage kGpt2Stage = split_by<match_gpt2>;
constexpr Stage kThreeDigits = split_by<match_three_ascii_digits>;
constexpr Stage kOneNumber = split_by<match_digits<1>>;
constexpr Stage kUpToThreeNumbers = split_by<match_digits<3>>;
constexpr Stage kNumberRun = split_by<match_digits<INT32_MAX>>;
constexpr Stage kNewlineStage = split_by<match_newline>;
constexpr Stage kCjkStage = split_by<match_cjk>;
constexpr Stage kLinesStage = split_by<match_lines>;
constexpr Stage kBloomStage = split_by<match_bloom>;
constexpr Stage kGpt4oStage = split_by<match_cased<true, 3>>;
constexpr Stage kQwen2Stage = split_by<match_family<kQwen2>>;

constexpr Stage kStagesGpt2[] = {kGpt2Stage};
constexpr Stage kStagesLlama3[] = {split_by<match_family<kLlama3>>};
constexpr Stage kStagesQwen2[] = {kQwen2Stage};
constexpr Stage kStagesQwen2NoContractions[] = {split_by<match_family<kQwen2NoContractions>>};
constexpr Stage kStagesQwen35[] = {split_by<match_family<kQwen35>>};
constexpr Stage kStagesTekken[] = {split_by<match_cased<false, 1>>};
constexpr Stage kStagesGpt4o[] = {kGpt4oStage};
constexpr Stage kStagesDigitGpt2[] = {kOneNumber, kGpt2Stage};
constexpr Stage kStagesFalcon[] = {split_by<match_punctuation<true>>, kGpt2Stage, kThreeDigits};
constexpr Stage kStagesDefault[] = {split_by<match_punctuation<false>>, kGpt2Stage, kNumberRun,
                                    kThreeDigits};
constexpr Stage kStagesDsCoder[] = {kNewlineStage, split_by<match_spaced_run<kClsLetter>>,
                                    split_by<match_spaced_run<kClsPunct>>, kCjkStage, kOneNumber};
constexpr Stage kStagesDsLlm[] = {kNewlineStage,
                                  split_by<match_spaced_run<kClsCased>>,
                                  split_by<match_dsllm_punctuation>,
                                  split_trailing_spaces,
                                  kCjkStage,
                                  kNumberRun};
constexpr Stage kStagesDsV3[] = {kUpToThreeNumbers, split_by<match_han_kana>,
                                 split_by<match_dsv3_words>};
constexpr Stage kStagesBloom[] = {kBloomStage};
constexpr Stage kStagesViking[] = {kBloomStage, kOneNumber};
constexpr Stage kStagesSeed[] = {split_by<match_family<kSeed>>};
constexpr Stage kStagesMiniCpm5[] = {kUpToThreeNumbers, split_by<match_family<kMiniCpm>>};
constexpr Stage kStagesTinyAya[] = {split_digits_from_right, kGpt4oStage};
constexpr Stage kStagesExaMoe[] = {split_by<match_family<kExaMoe>>};
constexpr Stage kStagesLines[] = {kLinesStage};
constexpr Stage kStagesLaguna[] = {kLinesStage, kQwen2Stage};

std::span<const Stage> stages_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::kGpt2:
      return kStagesGpt2;
    case Pattern::kLlama3:
      return kStagesLlama3;
    case Pattern::kQwen2:
      return kStagesQwen2;
    case Pattern::kQwen2NoContractions:
      return kStagesQwen2NoContractions;
    case Pattern::kQwen35:
      return kStagesQwen35;
    case Pattern::kTekken:
      return kStagesTekken;
    case Pattern::kGpt4o:
      return kStagesGpt4o;
    case Pattern::kDigitGpt2:
      return kStagesDigitGpt2;
    case Pattern::kFalcon:
      return kStagesFalcon;
    case Pattern::kDefault:
      return kStagesDefault;
    case Pattern::kDsCoder:
      return kStagesDsCoder;
    case Pattern::kDsLlm:
      return kStagesDsLlm;
    case Pattern::kDsV3:
      return kStagesDsV3;
    case Pattern::kBloom:
      return kStagesBloom;
    case Pattern::kViking:
      return kStagesViking;
    // The same language: possessive quantifiers and [sdmt] change nothing here.
    case Pattern::kBailing:
      return kStagesQwen2;
    case Pattern::kSeed:
      return kStagesSeed;
    case Pattern::kMiniCpm5:
      return kStagesMiniCpm5;
    case Pattern::kTinyAya:
      return kStagesTinyAya;
    case Pattern::kExaMoe:
      return kStagesExaMoe;
    case Pattern::kLines:
      return kStagesLines;
    case Pattern::kLaguna:
      return kStagesLaguna;
    case Pattern::kCount:
      break;
  }
  return {};
}

}  // namespace

void pretokenize(Pattern pattern, std::string_view text, EmitPiece emit, void* context) {
  const Sink sink{stages_of(pattern), emit, context};
  sink(text.data(), text.data() + text.size(), CharTable::get());
}

}  // namespace okibi::tokenizer
