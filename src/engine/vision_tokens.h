// The tokens that pictures need in a prompt, found by their spelling in the model's vocabulary.
#pragma once

#include <string>

#include "image/view.h"
#include "okibi/status.h"
#include "okibi/text.h"
#include "reuse/vision_cache.h"
#include "tokenizer/tokenizer.h"

namespace okibi::engine {

// The id of `<image>`, whose positions take rows. Fails, naming it, when a token is missing that a
// picture under these parameters may need.
Result<TokenId> find_vision_tokens(const tokenizer::Tokenizer& tokenizer,
                                   const image::ViewParams& params);

// The block of one picture as text.
std::string picture_prompt_text(const reuse::PictureLayout& layout);
// Its tokens: image tokens and markers.
uint32_t n_picture_tokens(const reuse::PictureLayout& layout);

}  // namespace okibi::engine
