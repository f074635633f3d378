// Class table, UTF-8 stepping and NFC. The table is built once, from utf8proc's categories and
// decompositions; what each character pattern means lives in pretokenize.cpp.
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tokenizer/tokenizer.h"

namespace okibi::tokenizer {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

struct Range {
  uint32_t first, last;
};

// Letters that have case, as the deepseek-llm pattern lists them.
constexpr Range kCasedRanges[] = {
    {'A', 'Z'},         {'a', 'z'},         {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

constexpr Range kSpaceRanges[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

uint16_t class_of_category(int category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kClsLetter | kClsUpper;
    case UTF8PROC_CATEGORY_LL:
      return kClsLetter | kClsLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kClsLetter | kClsUpper | kClsLower;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kClsMark | kClsUpper | kClsLower;
    case UTF8PROC_CATEGORY_ND:
      return kClsNumber | kClsDigit;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kClsNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kClsPunct;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kClsSymbol;
    default:
      return 0;
  }
}

// Full canonical decomposition of one code point; returns how many it became.
int decompose(uint32_t cp, utf8proc_int32_t* out, int capacity) {
  int boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  const auto n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(cp), out, capacity, options, &boundary);
  if (n < 1 || n > capacity) {  // cannot happen: no canonical decomposition is this long
    out[0] = static_cast<utf8proc_int32_t>(cp);
    return 1;
  }
  return static_cast<int>(n);
}

// Composes in place a sequence that is decomposed and in canonical order.
size_t compose(utf8proc_int32_t* cps, size_t n) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const auto m = utf8proc_normalize_utf32(cps, static_cast<utf8proc_ssize_t>(n), options);
  return m < 0 ? n : static_cast<size_t>(m);
}

int combining_class(utf8proc_int32_t cp) {
  return static_cast<int>(utf8proc_get_property(cp)->combining_class);
}

// A code point is active when it is a mark that can be reordered, when it is not its own NFC, or
// when it can be the later part of a composition. Between two inactive ones nothing ever changes.
void mark_nfc_active(std::vector<uint16_t>* words) {
  utf8proc_int32_t parts[32];
  for (uint32_t cp = 0; cp < kCodePoints; ++cp) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(cp));
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS) continue;
    if (combining_class(static_cast<utf8proc_int32_t>(cp)) != 0) (*words)[cp] |= kClsNfcActive;
    const int n = decompose(cp, parts, 32);
    if (n == 1 && parts[0] == static_cast<utf8proc_int32_t>(cp)) continue;
    for (int i = 1; i < n; ++i) (*words)[static_cast<size_t>(parts[i])] |= kClsNfcActive;
    const size_t m = compose(parts, static_cast<size_t>(n));
    if (m != 1 || parts[0] != static_cast<utf8proc_int32_t>(cp)) (*words)[cp] |= kClsNfcActive;
  }
}

void add_bits(std::vector<uint16_t>* words, const Range* ranges, size_t n, uint16_t bits) {
  for (size_t i = 0; i < n; ++i) {
    for (uint32_t cp = ranges[i].first; cp <= ranges[i].last; ++cp) (*words)[cp] |= bits;
  }
}

}  // namespace

CharTable::CharTable() {
  std::vector<uint16_t> flat(kCodePoints);
  for (uint32_t cp = 0; cp < kCodePoints; ++cp) {
    flat[cp] = class_of_category(utf8proc_category(static_cast<utf8proc_int32_t>(cp)));
  }
  add_bits(&flat, kSpaceRanges, std::size(kSpaceRanges), kClsSpace);
  add_bits(&flat, kCasedRanges, std::size(kCasedRanges), kClsCased);
  flat['\r'] |= kClsNewline;
  flat['\n'] |= kClsNewline;
  mark_nfc_active(&flat);

  std::map<std::string_view, uint16_t> seen;
  std::vector<uint32_t> kept;  // first code point of each distinct block
  index_.resize(kCodePoints >> 8);
  for (uint32_t block = 0; block < kCodePoints >> 8; ++block) {
    const std::string_view bytes(reinterpret_cast<const char*>(&flat[block << 8]),
                                 256 * sizeof(uint16_t));
    const auto [it, is_new] = seen.emplace(bytes, static_cast<uint16_t>(kept.size()));
    if (is_new) kept.push_back(block << 8);
    index_[block] = it->second;
  }
  words_.reserve(kept.size() * 256);
  for (uint32_t first : kept) {
    words_.insert(words_.end(), flat.begin() + first, flat.begin() + first + 256);
  }
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

Utf8Step next_utf8(const char* p, const char* end) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  const auto available = end - p;
  const unsigned char lead = u[0];
  if (lead < 0x80) return {Utf8Step::kGood, 1};
  int n = 0;
  unsigned char low = 0x80, high = 0xBF;  // what the second byte may be
  if (lead >= 0xC2 && lead <= 0xDF) {
    n = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    n = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    n = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::kBad, 1};
  }
  for (int i = 1; i < n; ++i) {
    if (i >= available) return {Utf8Step::kIncomplete, i};
    if (u[i] < low || u[i] > high) return {Utf8Step::kBad, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kGood, n};
}

void append_utf8(std::string* out, uint32_t cp) {
  if (cp < 0x80) {
    out->push_back(static_cast<char>(cp));
  } else if (cp < 0x800) {
    out->push_back(static_cast<char>(0xC0 | cp >> 6));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  } else if (cp < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | cp >> 12));
    out->push_back(static_cast<char>(0x80 | (cp >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | cp >> 18));
    out->push_back(static_cast<char>(0x80 | (cp >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  }
}

namespace {

// The first byte at or after `p` that is not ASCII.
const char* skip_ascii(const char* p, const char* end) {
  while (end - p >= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    if (word & 0x8080808080808080ull) break;
    p += 8;
  }
  while (p < end && !(*p & 0x80)) ++p;
  return p;
}

// Normalises the code points of one window and appends them.
void normalize_window(std::string_view window, std::vector<utf8proc_int32_t>* scratch,
                      std::string* out) {
  scratch->clear();
  const char* p = window.data();
  const char* const end = p + window.size();
  utf8proc_int32_t parts[32];
  while (p < end) {
    int n_bytes = 0;
    const uint32_t cp = decode_valid(p, &n_bytes);
    const int n = decompose(cp, parts, 32);
    scratch->insert(scratch->end(), parts, parts + n);
    p += n_bytes;
  }
  // Canonical order: marks sorted by class, stably, within each run. (utf8proc would do this with
  // a sort that is quadratic in the run, which a hostile text can make long.)
  auto it = scratch->begin();
  while (it != scratch->end()) {
    const auto run = std::find_if(it, scratch->end(), [](auto cp) { return combining_class(cp); });
    it = std::find_if(run, scratch->end(), [](auto cp) { return combining_class(cp) == 0; });
    if (it - run > 1) {
      std::stable_sort(run, it,
                       [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    }
  }
  const size_t n = compose(scratch->data(), scratch->size());
  for (size_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>((*scratch)[i]));
}

}  // namespace

bool needs_nfc(std::string_view text) {
  const CharTable& table = CharTable::get();
  const char* p = text.data();
  const char* const end = p + text.size();
  while ((p = skip_ascii(p, end)) < end) {
    int n_bytes = 0;
    if (table[decode_valid(p, &n_bytes)] & kClsNfcActive) return true;
    p += n_bytes;
  }
  return false;
}

std::string normalize_nfc(std::string_view text) {
  const CharTable& table = CharTable::get();
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> scratch;
  const char* p = text.data();
  const char* const end = p + text.size();
  const char* copied = p;    // everything before it is in `out`
  const char* previous = p;  // the character before p, where a window has to begin
  while (p < end) {
    int n_bytes = 0;
    const uint32_t cp = decode_valid(p, &n_bytes);
    if (!(table[cp] & kClsNfcActive)) {
      previous = p;
      p += n_bytes;
      continue;
    }
    const char* window_end = p;
    while (window_end < end && (table[decode_valid(window_end, &n_bytes)] & kClsNfcActive)) {
      window_end += n_bytes;
    }
    out.append(copied, previous);
    normalize_window(std::string_view(previous, static_cast<size_t>(window_end - previous)),
                     &scratch, &out);
    copied = previous = p = window_end;
  }
  out.append(copied, end);
  return out;
}

size_t find_invalid_utf8(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while ((p = skip_ascii(p, end)) < end) {
    const Utf8Step step = next_utf8(p, end);
    if (step.kind != Utf8Step::kGood) return static_cast<size_t>(p - text.data());
    p += step.n_bytes;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* ascii_end = skip_ascii(p, end);
    out.append(p, ascii_end);
    p = ascii_end;
    if (p == end) break;
    const Utf8Step step = next_utf8(p, end);
    if (step.kind == Utf8Step::kGood) {
      out.append(p, static_cast<size_t>(step.n_bytes));
    } else {
      append_utf8(&out, kReplacement);
    }
    p += step.n_bytes;
  }
  return out;
}

}  // namespace okibi::tokenizer
