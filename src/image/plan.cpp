// The view planner: one view, or a grid of tiles with a thumbnail, and the sizes. Formulas are
// those of LFM2-VL's image processor in transformers 5 (processor of the published models), in
// double precision and in its order of operations, because ties decide grids.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "image/view.h"

namespace okibi::image {
namespace {

constexpr int32_t kMaxSide = 1 << 20;
constexpr int32_t kMaxAspect = 200;
// Parameters come from files: these keep every product and every view in bounds.
constexpr int32_t kMaxTokens = 1 << 16, kMaxTile = 4096;
constexpr int64_t kMaxViewPixels = 1 << 26;

struct Size {
  int64_t width = 0, height = 0;
};

// Nearest multiple; ties go to the even one (the default rounding mode).
int64_t round_to_multiple(int64_t v, int64_t unit) {
  return unit *
         static_cast<int64_t>(std::nearbyint(static_cast<double>(v) / static_cast<double>(unit)));
}

Status check_params(const ViewParams& p) {
  const bool in_range = p.patch >= 1 && p.patch <= 256 && p.factor >= 1 && p.factor <= 16 &&
                        p.min_tokens >= 1 && p.max_tokens >= p.min_tokens &&
                        p.max_tokens <= kMaxTokens && p.tile >= 1 && p.tile <= kMaxTile &&
                        p.min_tiles >= 1 && p.max_tiles >= p.min_tiles && p.max_tiles <= 100 &&
                        p.tolerance > 0 && p.tolerance < 1e6;
  const int64_t unit = int64_t{p.patch} * p.factor;
  const bool plausible = in_range && p.tile % unit == 0 && p.tile / unit <= 256 &&
                         p.max_tokens * unit * unit <= kMaxViewPixels;
  if (plausible) return ok_status();
  return invalid_argument(fmt::format(
      "the model's picture parameters make no sense: {}..{} tokens, patch {}, factor {}, tile {}, "
      "{}..{} tiles, tolerance {}",
      p.min_tokens, p.max_tokens, p.patch, p.factor, p.tile, p.min_tiles, p.max_tiles,
      p.tolerance));
}

Status check_picture(int32_t width, int32_t height) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) {
    return invalid_argument(fmt::format(
        "a picture of {} x {} pixels has no views; sides may be 1 to {}", width, height, kMaxSide));
  }
  if (std::max(width, height) > int64_t{kMaxAspect} * std::min(width, height)) {
    return invalid_argument(
        fmt::format("a picture of {} x {} pixels is thinner than {}:1", width, height, kMaxAspect));
  }
  return ok_status();
}

// Stretches to whole tokens with an area between min_tokens and max_tokens.
Size smart_size(int64_t width, int64_t height, const ViewParams& p) {
  const int64_t unit = p.patch * p.factor, token_area = unit * unit;
  const double w = static_cast<double>(width), h = static_cast<double>(height);
  const double f = static_cast<double>(unit), area = static_cast<double>(width * height);
  Size s = {std::max(unit, round_to_multiple(width, unit)),
            std::max(unit, round_to_multiple(height, unit))};
  if (s.width * s.height > p.max_tokens * token_area) {
    const double shrink = std::sqrt(area / static_cast<double>(p.max_tokens * token_area));
    s.width = std::max(unit, unit * static_cast<int64_t>(std::floor(w / shrink / f)));
    s.height = std::max(unit, unit * static_cast<int64_t>(std::floor(h / shrink / f)));
  } else if (s.width * s.height < p.min_tokens * token_area) {
    const double grow = std::sqrt(static_cast<double>(p.min_tokens * token_area) / area);
    s.width = unit * static_cast<int64_t>(std::ceil(w * grow / f));
    s.height = unit * static_cast<int64_t>(std::ceil(h * grow / f));
  }
  return s;
}

// A side that cannot shrink below one token lets thin pictures exceed the encoder's patches; the
// long side gives way.
Size within_encoder(Size s, const ViewParams& p) {
  const int64_t tile_patches = p.tile / p.patch, unit = p.patch * p.factor;
  const int64_t max_patches =
      std::max<int64_t>(int64_t{p.max_tokens} * p.factor * p.factor, tile_patches * tile_patches);
  int64_t& longer = s.width >= s.height ? s.width : s.height;
  const int64_t shorter = std::min(s.width, s.height) / p.patch;
  if (shorter * (longer / p.patch) <= max_patches) return s;
  longer = std::max(unit, p.patch * (max_patches / shorter) / unit * unit);
  return s;
}

bool wants_tiles(int64_t width, int64_t height, const ViewParams& p) {
  if (!p.split || (p.min_tiles == 1 && p.max_tiles == 1)) return false;
  const int64_t unit = p.patch * p.factor;
  const int64_t area = std::max<int64_t>(p.patch, round_to_multiple(width, unit)) *
                       std::max<int64_t>(p.patch, round_to_multiple(height, unit));
  return static_cast<double>(area) > static_cast<double>(p.max_tokens * unit * unit) * p.tolerance;
}

struct Grid {
  int32_t columns = 1, rows = 1;
};

// The grid whose shape is nearest the picture's; of equally near ones the largest that the picture
// fills by more than half.
Grid choose_grid(int64_t width, int64_t height, const ViewParams& p) {
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  const double area = static_cast<double>(width * height);
  Grid best;
  double best_error = HUGE_VAL;
  for (int32_t n = p.min_tiles; n <= p.max_tiles; ++n) {
    for (int32_t columns = 1; columns <= n; ++columns) {
      if (n % columns != 0) continue;
      const int32_t rows = n / columns;
      const double error = std::fabs(aspect - static_cast<double>(columns) / rows);
      const double grid_area = static_cast<double>(int64_t{p.tile} * p.tile * n);
      if (error < best_error || (error == best_error && area > 0.5 * grid_area)) {
        best_error = error;
        best = {columns, rows};
      }
    }
  }
  return best;
}

}  // namespace

int32_t ViewPlan::n_image_tokens() const {
  int32_t sum = 0;
  for (const int32_t n : tokens) sum += n;
  return sum;
}

int32_t ViewPlan::n_prompt_tokens() const {
  const int32_t n_markers = 2 + (tiled ? n_views() : 0);
  return n_image_tokens() + n_markers;
}

Result<ViewPlan> plan_views(int32_t width, int32_t height, const ViewParams& params) {
  OKIBI_RETURN_IF_ERROR(check_params(params));
  OKIBI_RETURN_IF_ERROR(check_picture(width, height));
  const int32_t unit = params.patch * params.factor;
  ViewPlan plan;
  plan.source_width = width;
  plan.source_height = height;

  Grid grid;
  if (wants_tiles(width, height, params)) grid = choose_grid(width, height, params);
  const int32_t n_tiles = grid.columns * grid.rows;
  plan.tiled = n_tiles > 1;  // one tile is a view like others, without a thumbnail beside it
  if (plan.tiled) {
    plan.columns = grid.columns;
    plan.rows = grid.rows;
    plan.canvas_width = grid.columns * params.tile;
    plan.canvas_height = grid.rows * params.tile;
    const int32_t side = params.tile / unit;
    plan.tokens.assign(static_cast<size_t>(n_tiles), side * side);
    plan.has_thumbnail = params.thumbnail;
  }
  if (!plan.tiled || plan.has_thumbnail) {
    const Size size = within_encoder(smart_size(width, height, params), params);
    plan.view_width = static_cast<int32_t>(size.width);
    plan.view_height = static_cast<int32_t>(size.height);
    plan.tokens.push_back(static_cast<int32_t>(size.width / unit * (size.height / unit)));
  }
  return plan;
}

}  // namespace okibi::image
