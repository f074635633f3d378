// What each name of `tokenizer.ggml.pre` stands for: split pattern and defaults. Data only.
#pragma once

#include <string_view>

#include "okibi/status.h"
#include "tokenizer/pretokenize.h"

namespace okibi::tokenizer {

struct PreEntry {
  std::string_view name;
  Pattern pattern;
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool add_bos = false;        // unless the file says otherwise
  bool nfc = false;            // the original tokenizer normalises first
};

// The entry of a name, or an error that names it; "" stands for "default".
Result<PreEntry> find_pre(std::string_view name);

}  // namespace okibi::tokenizer
