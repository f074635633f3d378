// The picture side of an engine: from a file's bytes to rows, through the caches. Decoding and
// resizing run on the caller's thread, encoding on the engine thread, one view at a time between
// steps, so that a question waits for at most one view.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "image/view.h"
#include "model/vision/encoder.h"
#include "okibi/picture.h"
#include "okibi/status.h"
#include "reuse/vision_cache.h"

namespace okibi::engine {

class Vision {
 public:
  // `identity` names everything that rows depend on besides pixels.
  Vision(std::unique_ptr<model::VisionEncoder> encoder, const Sha256& identity, TokenId image_token,
         uint64_t cache_bytes)
      : encoder_(std::move(encoder)),
        identity_(identity),
        image_token_(image_token),
        cache_(cache_bytes) {}

  // Thread-safe. `max_tokens`: of the whole block.
  Result<Picture> encode(Scheduler& scheduler, std::span<const uint8_t> file,
                         const std::string& scope, uint32_t max_tokens);
  // A picture that is known in whole, by the SHA-256 of its file.
  Result<Picture> find(const std::string& sha256, const std::string& scope);
  // Puts the pictures' rows, in order, at the image tokens.
  Result<Prompt> place(std::vector<TokenId> tokens, std::span<const Picture> pictures) const;

  const model::VisionEncoder& encoder() const { return *encoder_; }
  const Sha256& identity() const { return identity_; }
  reuse::VisionCache& cache() { return cache_; }

 private:
  // Adds what resizing took to *resize_seconds.
  Result<std::vector<image::View>> decode(std::span<const uint8_t> file,
                                          reuse::PictureLayout* layout,
                                          double* resize_seconds) const;
  reuse::VisionKey file_key(const Sha256& file, const Sha256& space) const;
  Result<reuse::ViewRows> encode_view(Scheduler& scheduler, const image::View& view,
                                      const Sha256& digest);

  const std::unique_ptr<model::VisionEncoder> encoder_;  // engine thread; its facts are immutable
  const Sha256 identity_;
  const TokenId image_token_;
  reuse::VisionCache cache_;
};

}  // namespace okibi::engine
