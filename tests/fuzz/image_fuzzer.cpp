// Any bytes as a picture file: decoding may refuse them in a short sentence, but what it accepts
// must be whole, and its views must be those of the plan. The bytes are also read as EXIF data.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "image/decoders.h"
#include "image/view.h"

namespace okibi::image {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_views(const Picture& picture) {
  const Result<ViewPlan> plan = plan_views(picture.width, picture.height, {});
  require(plan.ok());  // the decoder's limits are the stricter ones
  const Result<std::vector<View>> views = make_views(picture, *plan, {});
  require(views.ok() && views->size() == plan->tokens.size());
  for (size_t i = 0; i < views->size(); ++i) {
    const View& view = (*views)[i];
    require(view.width % 32 == 0 && view.height % 32 == 0);
    require(view.width / 32 * (view.height / 32) == plan->tokens[i] && plan->tokens[i] <= 256);
    require(view.rgb.size() ==
            size_t{3} * static_cast<size_t>(view.width) * static_cast<size_t>(view.height));
  }
}

}  // namespace
}  // namespace okibi::image

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace okibi::image;
  const int32_t orientation = exif_orientation({data, size});
  require(orientation >= 1 && orientation <= 8);
  // Small limits: large pictures are slow to fuzz and take the same paths.
  const DecodeLimits limits = {.max_side = 2048, .max_pixels = 1 << 18};
  const okibi::Result<Picture> picture = decode_picture({data, size}, limits);
  if (!picture.ok()) {
    const std::string& message = picture.status().message();
    require(!message.empty() && message.size() < 200);
    return 0;
  }
  require(picture->width >= 1 && picture->height >= 1);
  require(picture->rgb.size() ==
          size_t{3} * static_cast<size_t>(picture->width) * static_cast<size_t>(picture->height));
  if (picture->rgb.size() < (1 << 16)) check_views(*picture);
  return 0;
}
