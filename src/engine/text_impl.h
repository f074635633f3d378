// The public Text over a vocabulary's Tokenizer: prompts, chats and streams in terms of
// okibi/text.h. Encoding itself is the tokenizer's; layouts are tokenizer/chat_layout's. Immutable
// and safe to use from many threads.
#pragma once

#include <memory>
#include <string>

#include "okibi/text.h"
#include "tokenizer/tokenizer.h"

namespace okibi::engine {

// `chat_layout_override`: the name of a layout to use whatever the file's template says; empty: the
// template decides. A name that does not exist is reported when a chat is asked for, and by
// chat_layout().
std::unique_ptr<Text> make_text(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                std::string chat_layout_override);

}  // namespace okibi::engine
