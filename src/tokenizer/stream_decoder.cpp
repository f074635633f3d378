// See stream_decoder.h. Bytes become characters, characters run through the stop strings' automata,
// and what no stop string may still claim is handed out.
#include "tokenizer/stream_decoder.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace okibi::tokenizer {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                             bool strip_leading_space)
    : tokenizer_(tokenizer), strip_leading_space_(strip_leading_space) {
  for (std::string& text : stop_strings) {
    if (text.empty()) continue;
    Stop stop;
    stop.fallback.assign(text.size() + 1, 0);
    for (size_t n = 2, border = 0; n <= text.size(); ++n) {
      while (border > 0 && text[n - 1] != text[border]) border = stop.fallback[border];
      if (text[n - 1] == text[border]) ++border;
      stop.fallback[n] = border;
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

std::string StreamDecoder::push(TokenId id) {
  if (stopped_) return {};
  bytes_ += tokenizer_.token_bytes(id);
  return emit_ready(false);
}

std::string StreamDecoder::finish() {
  if (stopped_) return {};
  return emit_ready(true);
}

void StreamDecoder::accept(std::string_view text) {
  if (strip_leading_space_ && !text.empty()) {
    strip_leading_space_ = false;
    if (text[0] == ' ') text.remove_prefix(1);
  }
  for (char c : text) {
    held_ += c;
    size_t longest = 0;  // of several that end here the one that began first
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && c != stop.text[stop.matched]) {
        stop.matched = stop.fallback[stop.matched];
      }
      if (c == stop.text[stop.matched]) ++stop.matched;
      if (stop.matched == stop.text.size()) longest = std::max(longest, stop.matched);
    }
    if (longest > 0) {
      held_.resize(held_.size() - longest);
      stopped_ = true;
      return;
    }
  }
}

std::string StreamDecoder::emit_ready(bool at_end) {
  const char* p = bytes_.data();
  const char* const end = p + bytes_.size();
  while (p < end && !stopped_) {
    const Utf8Step step = next_utf8(p, end);
    if (step.kind == Utf8Step::kIncomplete && !at_end) break;
    if (step.kind == Utf8Step::kGood) {
      accept(std::string_view(p, static_cast<size_t>(step.n_bytes)));
    } else {
      std::string replacement;
      append_utf8(&replacement, kReplacement);
      accept(replacement);
    }
    p += step.n_bytes;
  }
  bytes_.erase(0, static_cast<size_t>(p - bytes_.data()));

  size_t hold = 0;
  if (!stopped_ && !at_end) {
    for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  }
  std::string ready = held_.substr(0, held_.size() - hold);
  held_.erase(0, ready.size());
  return ready;
}

}  // namespace okibi::tokenizer
