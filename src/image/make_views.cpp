// Carries a plan out: the picture stretched under its grid and cut into tiles, and the single view
// or thumbnail.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "image/resize.h"
#include "image/view.h"

namespace okibi::image {
namespace {

View cut_tile(const std::vector<uint8_t>& canvas, int32_t canvas_width, int32_t side,
              int32_t column, int32_t row) {
  View view{side, side, std::vector<uint8_t>(size_t{3} * static_cast<size_t>(side * side))};
  const size_t row_bytes = size_t{3} * static_cast<size_t>(side);
  for (int32_t y = 0; y < side; ++y) {
    const size_t from =
        size_t{3} * (static_cast<size_t>(row * side + y) * static_cast<size_t>(canvas_width) +
                     static_cast<size_t>(column * side));
    std::copy_n(canvas.data() + from, row_bytes,
                view.rgb.data() + row_bytes * static_cast<size_t>(y));
  }
  return view;
}

}  // namespace

Result<std::vector<View>> make_views(const Picture& picture, const ViewPlan& plan,
                                     const ViewParams& params) {
  const int32_t w = picture.width, h = picture.height;
  if (w < 1 || h < 1 ||
      picture.rgb.size() != size_t{3} * static_cast<size_t>(w) * static_cast<size_t>(h)) {
    return invalid_argument(
        fmt::format("a picture of {} x {} pixels came with {} bytes", w, h, picture.rgb.size()));
  }
  OKIBI_ASSIGN_OR_RETURN(const ViewPlan expected, plan_views(w, h, params));
  if (!(expected == plan)) {
    return invalid_argument(
        fmt::format("the view plan is for another picture or model: planned for {} x {}, the "
                    "picture is {} x {}",
                    plan.source_width, plan.source_height, w, h));
  }
  std::vector<View> views;
  views.reserve(static_cast<size_t>(plan.n_views()));
  if (plan.tiled) {
    const std::vector<uint8_t> canvas =
        resize_rgb(picture.rgb, w, h, plan.canvas_width, plan.canvas_height, params.resample);
    for (int32_t row = 0; row < plan.rows; ++row) {
      for (int32_t column = 0; column < plan.columns; ++column) {
        views.push_back(cut_tile(canvas, plan.canvas_width, params.tile, column, row));
      }
    }
  }
  if (plan.view_width > 0) {
    views.push_back(
        {plan.view_width, plan.view_height,
         resize_rgb(picture.rgb, w, h, plan.view_width, plan.view_height, params.resample)});
  }
  return views;
}

}  // namespace okibi::image
