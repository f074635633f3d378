#include "apps/pictures.h"

#include <fmt/format.h>

#include "apps/terminal.h"
#include "base/hash.h"

namespace okibi::apps {

Result<std::vector<Picture>> encode_pictures(Engine& engine,
                                             const std::vector<std::string>& paths) {
  std::vector<Picture> pictures;
  for (const std::string& path : paths) {
    OKIBI_ASSIGN_OR_RETURN(const std::string bytes, read_bytes(path));
    auto picture = engine.encode_picture(bytes_of(bytes));
    if (!picture.ok()) return picture.status().with_context(path);
    pictures.push_back(*std::move(picture));
  }
  return pictures;
}

std::string describe_picture(const std::string& path, const Picture& picture) {
  const size_t n_views = picture.views.size();
  return fmt::format(
      "{}: {} x {}, {} view{}, {} image tokens | decoded in {:.1f} ms{} | {} encoded, {} known, "
      "{:.1f} ms",
      path, picture.width, picture.height, n_views, n_views == 1 ? "" : "s", picture.n_image_tokens,
      1e3 * picture.decode_seconds, picture.file_was_known ? " (known)" : "", picture.views_encoded,
      picture.views_known, 1e3 * picture.encode_seconds);
}

}  // namespace okibi::apps
