#include "engine/vision_tokens.h"

#include <fmt/format.h>

namespace okibi::engine {
namespace {

constexpr std::string_view kImage = "<image>";
constexpr std::string_view kStart = "<|image_start|>", kEnd = "<|image_end|>";
constexpr std::string_view kThumbnail = "<|img_thumbnail|>";

std::string tile_label(int32_t row, int32_t column) {
  return fmt::format("<|img_row_{}_col_{}|>", row, column);
}

// Only control and user-defined tokens are found in text as a whole.
Result<TokenId> find(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const TokenId id = tokenizer.find(text);
  if (id == tokenizer::kNoToken) {
    return bad_data(
        fmt::format("the vocabulary has no token {}, which prompts with pictures need", text));
  }
  const tokenizer::TokenType type = tokenizer.token_type(id);
  if (type != tokenizer::TokenType::kControl && type != tokenizer::TokenType::kUserDefined) {
    return bad_data(fmt::format("token {} ({}): found type {}, expected a control token", id, text,
                                static_cast<int>(type)));
  }
  return id;
}

}  // namespace

Result<TokenId> find_vision_tokens(const tokenizer::Tokenizer& tokenizer,
                                   const image::ViewParams& params) {
  for (const std::string_view text : {kStart, kEnd}) {
    OKIBI_RETURN_IF_ERROR(find(tokenizer, text).status());
  }
  if (params.split) {
    if (params.thumbnail) OKIBI_RETURN_IF_ERROR(find(tokenizer, kThumbnail).status());
    for (int32_t row = 1; row <= params.max_tiles; ++row) {
      for (int32_t column = 1; row * column <= params.max_tiles; ++column) {
        OKIBI_RETURN_IF_ERROR(find(tokenizer, tile_label(row, column)).status());
      }
    }
  }
  return find(tokenizer, kImage);
}

std::string picture_prompt_text(const reuse::PictureLayout& layout) {
  std::string text(kStart);
  for (size_t i = 0; i < layout.views.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (layout.is_tiled && index < layout.columns * layout.rows) {
      text += tile_label(index / layout.columns + 1, index % layout.columns + 1);
    } else if (layout.is_tiled) {
      text += kThumbnail;
    }
    for (uint32_t j = 0; j < layout.views[i].n_tokens; ++j) text += kImage;
  }
  text += kEnd;
  return text;
}

uint32_t n_picture_tokens(const reuse::PictureLayout& layout) {
  size_t n = 2 + (layout.is_tiled ? layout.views.size() : 0);
  for (const reuse::PictureLayout::View& view : layout.views) n += view.n_tokens;
  return static_cast<uint32_t>(n);
}

}  // namespace okibi::engine
