#include "engine/vision.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/vision_tokens.h"
#include "image/picture.h"
#include "reuse/key_space.h"

namespace okibi::engine {
namespace {

// Raised whenever decoding or resizing changes a pixel.
constexpr int kPixelRevision = 1;

std::string decode_options_text(const image::ViewParams& p) {
  return fmt::format(
      "r{} tokens {}-{} patch {} factor {} tile {} tiles {}-{} tolerance {} "
      "thumbnail {} split {} resample {}",
      kPixelRevision, p.min_tokens, p.max_tokens, p.patch, p.factor, p.tile, p.min_tiles,
      p.max_tiles, p.tolerance, p.thumbnail, p.split, static_cast<int>(p.resample));
}

Picture make_picture(const reuse::PictureLayout& layout, const Sha256& file) {
  Picture picture;
  picture.sha256 = to_hex(file);
  picture.width = layout.width;
  picture.height = layout.height;
  picture.is_tiled = layout.is_tiled;
  picture.columns = layout.columns;
  picture.rows = layout.rows;
  picture.has_thumbnail = layout.has_thumbnail;
  for (const reuse::PictureLayout::View& view : layout.views) {
    picture.views.push_back({view.width, view.height, view.n_tokens, to_hex(view.digest), nullptr});
    picture.n_image_tokens += view.n_tokens;
  }
  picture.prompt_text = picture_prompt_text(layout);
  picture.n_prompt_tokens = n_picture_tokens(layout);
  return picture;
}

// The inverse of to_hex.
bool parse_hex(const std::string& text, Sha256* out) {
  if (text.size() != 2 * out->size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    uint8_t& byte = (*out)[i / 2];
    byte = static_cast<uint8_t>(i % 2 == 0 ? digit << 4 : byte | digit);
  }
  return true;
}

}  // namespace

reuse::VisionKey Vision::file_key(const Sha256& file, const Sha256& space) const {
  const std::string options = decode_options_text(encoder_->hparams().views);
  Sha256Stream stream;
  stream.update(file);
  stream.update(bytes_of(options));
  return {space, stream.finish()};
}

Result<std::vector<image::View>> Vision::decode(std::span<const uint8_t> file,
                                                reuse::PictureLayout* layout,
                                                double* resize_seconds) const {
  const image::ViewParams& params = encoder_->hparams().views;
  OKIBI_ASSIGN_OR_RETURN(const image::Picture picture, image::decode_picture(file));
  OKIBI_ASSIGN_OR_RETURN(const image::ViewPlan plan,
                         image::plan_views(picture.width, picture.height, params));
  const double begin = seconds_now();
  OKIBI_ASSIGN_OR_RETURN(std::vector<image::View> views, image::make_views(picture, plan, params));
  *resize_seconds += seconds_now() - begin;
  layout->width = picture.width;
  layout->height = picture.height;
  layout->is_tiled = plan.tiled;
  layout->columns = plan.columns;
  layout->rows = plan.rows;
  layout->has_thumbnail = plan.has_thumbnail;
  for (const image::View& view : views) {
    layout->views.push_back({.digest = image::view_digest(view),
                             .width = view.width,
                             .height = view.height,
                             .n_tokens = static_cast<uint32_t>(encoder_->n_tokens(view))});
  }
  return views;
}

Result<reuse::ViewRows> Vision::encode_view(Scheduler& scheduler, const image::View& view,
                                            const Sha256& digest) {
  const image::View* const views[] = {&view};
  OKIBI_RETURN_IF_ERROR(encoder_->check(views));
  reuse::ViewRows rows;
  rows.view = digest;
  rows.identity = identity_;
  rows.n_rows = static_cast<uint32_t>(encoder_->n_tokens(view));
  rows.width = encoder_->hparams().d_text;
  scheduler.call_between_steps(
      [&](Core& core) { rows.values = std::move(encoder_->encode(core.backend(), views)[0]); });
  return rows;
}

Result<Picture> Vision::encode(Scheduler& scheduler, std::span<const uint8_t> file,
                               const std::string& scope, uint32_t max_tokens) {
  const double start = seconds_now();
  const Sha256 file_digest = image::file_digest(file);
  const Sha256 space = reuse::key_space(scope, identity_);
  std::vector<image::View> views;  // empty while nobody needed the pixels here
  double resize_seconds = 0;
  auto outcome = reuse::VisionCache::Outcome::kHit;
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<const reuse::PictureLayout> layout,
                         cache_.layout(
                             file_key(file_digest, space),
                             [&]() -> Result<reuse::PictureLayout> {
                               reuse::PictureLayout made;
                               OKIBI_ASSIGN_OR_RETURN(views, decode(file, &made, &resize_seconds));
                               return made;
                             },
                             &outcome));
  Picture picture = make_picture(*layout, file_digest);
  picture.file_was_known = outcome != reuse::VisionCache::Outcome::kComputed;
  picture.decode_seconds = seconds_now() - start;
  picture.resize_seconds = resize_seconds;
  if (picture.n_prompt_tokens > max_tokens) {
    return resource_exhausted(
        fmt::format("a picture of {} x {} pixels takes {} tokens; there is room for {}",
                    picture.width, picture.height, picture.n_prompt_tokens, max_tokens));
  }
  for (size_t i = 0; i < layout->views.size(); ++i) {
    const Sha256& digest = layout->views[i].digest;
    const auto compute = [&]() -> Result<reuse::ViewRows> {
      if (views.empty()) {
        // The layout is known, these rows are gone: the pixels are needed once more.
        const double begin = seconds_now();
        reuse::PictureLayout again;
        OKIBI_ASSIGN_OR_RETURN(views, decode(file, &again, &picture.resize_seconds));
        picture.decode_seconds += seconds_now() - begin;
      }
      const double begin = seconds_now();
      auto rows = encode_view(scheduler, views[i], digest);
      picture.encode_seconds += seconds_now() - begin;
      return rows;
    };
    OKIBI_ASSIGN_OR_RETURN(picture.views[i].rows, cache_.rows({space, digest}, compute, &outcome));
    ++(outcome == reuse::VisionCache::Outcome::kComputed ? picture.views_encoded
                                                         : picture.views_known);
  }
  return picture;
}

Result<Picture> Vision::find(const std::string& sha256, const std::string& scope) {
  Sha256 file;
  if (!parse_hex(sha256, &file)) {
    return invalid_argument("a picture's SHA-256 is 64 hexadecimal digits, found \"" +
                            sha256.substr(0, 80) + "\"");
  }
  const Sha256 space = reuse::key_space(scope, identity_);
  const Status unknown = not_found("the picture sha256:" + to_hex(file) +
                                   " is not known here (any more); send its bytes");
  const auto layout = cache_.find_layout(file_key(file, space));
  if (layout == nullptr) return unknown;
  Picture picture = make_picture(*layout, file);
  picture.file_was_known = true;
  for (size_t i = 0; i < layout->views.size(); ++i) {
    picture.views[i].rows = cache_.find_rows({space, layout->views[i].digest});
    if (picture.views[i].rows == nullptr) return unknown;
    ++picture.views_known;
  }
  return picture;
}

Result<Prompt> Vision::place(std::vector<TokenId> tokens, std::span<const Picture> pictures) const {
  Prompt prompt;
  prompt.tokens = std::move(tokens);
  size_t n_rows = 0, n_places = 0;
  for (const Picture& picture : pictures) n_rows += picture.n_image_tokens;
  for (const TokenId id : prompt.tokens) n_places += id == image_token_;
  if (n_rows != n_places) {
    return invalid_argument(
        fmt::format("the prompt has {} image tokens, the {} pictures have {} rows; expected as "
                    "many of one as of the other",
                    n_places, pictures.size(), n_rows));
  }
  size_t at = 0;
  for (size_t p = 0; p < pictures.size(); ++p) {
    for (const Picture::View& view : pictures[p].views) {
      while (view.n_tokens > 0 && prompt.tokens[at] != image_token_) ++at;
      for (size_t i = at; i < at + view.n_tokens; ++i) {
        if (i < prompt.tokens.size() && prompt.tokens[i] == image_token_) continue;
        return invalid_argument(
            fmt::format("image tokens from position {} on: picture {} has a view of {} rows, the "
                        "run ends after {}",
                        at, p + 1, view.n_tokens, i - at));
      }
      if (view.rows == nullptr || view.rows->n_rows != view.n_tokens) {
        return invalid_argument(fmt::format("picture {} holds no rows", p + 1));
      }
      prompt.rows.push_back({at, view.rows});
      at += view.n_tokens;
    }
  }
  return prompt;
}

}  // namespace okibi::engine
