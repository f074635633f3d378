// The tokenizer's keys of a GGUF file, as plain data for tokenizer::Tokenizer.
#pragma once

#include "gguf/reader.h"
#include "okibi/status.h"
#include "tokenizer/tokenizer.h"

namespace okibi::model {

// Reads what the file says; Tokenizer::create judges it. Fails on keys of the wrong type.
Result<tokenizer::VocabularyData> read_vocabulary(const gguf::File& file);

}  // namespace okibi::model
