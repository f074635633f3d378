#include "apps/inspect_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/printable.h"
#include "apps/terminal.h"
#include "apps/vision_file.h"
#include "base/hash.h"
#include "image/view.h"

namespace okibi::apps {
namespace {

using Json = nlohmann::ordered_json;
using image::Picture;
using image::View;
using image::ViewParams;
using image::ViewPlan;

struct Model {
  std::string name;
  ViewParams views;
};

// The one place that knows where view parameters come from.
Result<Model> choose_model(const InspectPictureFlags& flags) {
  const bool has_model = !flags.model_path.empty(), has_vision = !flags.mmproj_path.empty();
  if (!has_model && !has_vision) return Model{"LFM2.5-VL (no model given)", ViewParams{}};
  if (!has_model || !has_vision) {
    return invalid_argument(
        fmt::format("a model's view of a picture follows from its two files: found only {}, "
                    "expected -m and --mmproj",
                    has_model ? "-m" : "--mmproj"));
  }
  OKIBI_ASSIGN_OR_RETURN(const model::VisionHparams vision,
                         read_vision_file(flags.model_path, flags.mmproj_path));
  const std::string file = std::filesystem::path(flags.mmproj_path).filename().string();
  return Model{printable(vision.name.empty() ? file : vision.name, 100), vision.views};
}

Result<std::vector<uint8_t>> read_picture_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found(fmt::format("{}: cannot be opened", printable(path, 400)));
  // One byte above the limit is enough for the decoder to refuse the file.
  std::vector<uint8_t> bytes(image::DecodeLimits{}.max_file_bytes + 1);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (in.bad()) return unavailable(fmt::format("{}: cannot be read", printable(path, 400)));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

struct Inspection {
  std::string path;
  std::string model_name;
  ViewParams params;
  uint64_t file_bytes = 0;
  std::string file_sha256;
  Picture picture;
  ViewPlan plan;
  std::vector<View> views;
  std::vector<std::string> written;  // paths of the views' pixels
};

bool is_tile(const ViewPlan& plan, size_t i) {
  return plan.tiled && i < static_cast<size_t>(plan.columns * plan.rows);
}

std::string view_words(const ViewPlan& plan, size_t i) {
  if (!plan.tiled) return "whole picture";
  if (!is_tile(plan, i)) return "thumbnail";
  const size_t columns = static_cast<size_t>(plan.columns);
  return fmt::format("row {} column {}", i / columns + 1, i % columns + 1);
}

// One view goes to the path itself, several to PATH-1, PATH-2, ... before the extension.
std::string view_path(const std::string& path, size_t i, size_t n) {
  if (n == 1) return path;
  const std::filesystem::path whole(path);
  std::filesystem::path name = whole.stem();
  name += fmt::format("-{}", i + 1);
  name += whole.extension();
  return (whole.parent_path() / name).string();
}

Status write_ppm(const std::string& path, const View& view) {
  std::ofstream out(path, std::ios::binary);
  out << fmt::format("P6\n{} {}\n255\n", view.width, view.height);
  out.write(reinterpret_cast<const char*>(view.rgb.data()),
            static_cast<std::streamsize>(view.rgb.size()));
  out.close();
  if (!out) return unavailable(fmt::format("{}: cannot be written", printable(path, 400)));
  return ok_status();
}

std::string_view orientation_words(int32_t orientation) {
  constexpr std::array<std::string_view, 9> kWords = {"",
                                                      "upright",
                                                      "mirrored left to right",
                                                      "turned by 180 degrees",
                                                      "mirrored top to bottom",
                                                      "mirrored along the diagonal",
                                                      "turned clockwise by 90 degrees",
                                                      "mirrored along the other diagonal",
                                                      "turned counter-clockwise by 90 degrees"};
  return kWords[static_cast<size_t>(orientation)];
}

void print_picture(const Inspection& in) {
  const Picture& p = in.picture;
  fmt::print("{}: {}, {} x {}, {}\n", printable(in.path, 400), image::name_of(p.format), p.width,
             p.height, format_bytes(in.file_bytes));
  fmt::print("  stored       {} x {}, {}, {} bits{}\n", p.stored_width, p.stored_height, p.colour,
             p.bits,
             !p.is_progressive                 ? ""
             : p.format == image::Format::kPng ? ", interlaced"
                                               : ", progressive");
  fmt::print("  orientation  {}{}\n", p.orientation,
             p.orientation == 1
                 ? ", stored upright"
                 : fmt::format(", {} to stand upright", orientation_words(p.orientation)));
  if (p.has_alpha) fmt::print("  alpha        laid over white\n");
  if (p.is_animated) fmt::print("  animation    the first frame\n");
  if (p.has_icc_profile) fmt::print("  ICC profile  ignored\n");
  fmt::print("  SHA-256      {}\n", in.file_sha256);
}

void print_views(const Inspection& in) {
  const ViewPlan& plan = in.plan;
  fmt::print("\nAs {} sees it: ", in.model_name);
  if (plan.tiled) {
    fmt::print("{} x {} tiles on a canvas of {} x {}{}\n", plan.columns, plan.rows,
               plan.canvas_width, plan.canvas_height,
               plan.has_thumbnail ? ", then a thumbnail" : "");
  } else {
    fmt::print("one view\n");
  }
  fmt::print("  {:>4}  {:<16} {:>11} {:>8} {:>7}  {}\n", "view", "shows", "size", "patches",
             "tokens", "SHA-256");
  for (size_t i = 0; i < in.views.size(); ++i) {
    const View& view = in.views[i];
    const int32_t patches = view.width / in.params.patch * (view.height / in.params.patch);
    fmt::print("  {:>4}  {:<16} {:>11} {:>8} {:>7}  {}\n", i + 1, view_words(plan, i),
               fmt::format("{} x {}", view.width, view.height), patches, plan.tokens[i],
               to_hex(image::view_digest(view)));
  }
  fmt::print("  {} image tokens, {} in the prompt with their markers\n", plan.n_image_tokens(),
             plan.n_prompt_tokens());
  for (const std::string& path : in.written) fmt::print("wrote {}\n", printable(path, 400));
}

Json params_json(const ViewParams& p) {
  return {{"min_tokens", p.min_tokens},
          {"max_tokens", p.max_tokens},
          {"patch", p.patch},
          {"factor", p.factor},
          {"tile", p.tile},
          {"min_tiles", p.min_tiles},
          {"max_tiles", p.max_tiles},
          {"tolerance", p.tolerance},
          {"thumbnail", p.thumbnail},
          {"split", p.split},
          {"resample", p.resample == ViewParams::Resample::kBicubic ? "bicubic" : "bilinear"}};
}

void print_json(const Inspection& in) {
  const Picture& p = in.picture;
  Json root = {{"path", in.path},
               {"format", image::name_of(p.format)},
               {"file_bytes", in.file_bytes},
               {"file_sha256", in.file_sha256},
               {"width", p.width},
               {"height", p.height},
               {"stored_width", p.stored_width},
               {"stored_height", p.stored_height},
               {"orientation", p.orientation},
               {"colour", p.colour},
               {"bits", p.bits},
               {"progressive", p.is_progressive},
               {"alpha", p.has_alpha},
               {"animated", p.is_animated},
               {"icc_profile", p.has_icc_profile}};
  root["model"] = {{"name", in.model_name}, {"parameters", params_json(in.params)}};
  root["plan"] = {{"tiled", in.plan.tiled},
                  {"columns", in.plan.columns},
                  {"rows", in.plan.rows},
                  {"canvas_width", in.plan.canvas_width},
                  {"canvas_height", in.plan.canvas_height},
                  {"thumbnail", in.plan.has_thumbnail},
                  {"image_tokens", in.plan.n_image_tokens()},
                  {"prompt_tokens", in.plan.n_prompt_tokens()}};
  Json& views = root["views"] = Json::array();
  for (size_t i = 0; i < in.views.size(); ++i) {
    Json view = {{"shows", view_words(in.plan, i)},
                 {"width", in.views[i].width},
                 {"height", in.views[i].height},
                 {"tokens", in.plan.tokens[i]},
                 {"sha256", to_hex(image::view_digest(in.views[i]))}};
    if (is_tile(in.plan, i)) {
      view["row"] = static_cast<int32_t>(i) / in.plan.columns + 1;
      view["column"] = static_cast<int32_t>(i) % in.plan.columns + 1;
    }
    if (i < in.written.size()) view["written"] = in.written[i];
    views.push_back(std::move(view));
  }
  // Paths may hold any bytes; JSON may not.
  fmt::print("{}\n", root.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

bool is_picture_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<uint8_t, 16> start = {};
  in.read(reinterpret_cast<char*>(start.data()), start.size());
  const size_t n = static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0));
  return image::sniff_format(std::span(start).first(n)).has_value();
}

Status inspect_picture(const InspectPictureFlags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const Model model, choose_model(flags));
  OKIBI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_picture_file(flags.path));
  Inspection in;
  in.path = flags.path;
  in.model_name = model.name;
  in.params = model.views;
  in.file_bytes = bytes.size();
  in.file_sha256 = to_hex(image::file_digest(bytes));
  Result<Picture> picture = image::decode_picture(bytes);
  if (!picture.ok()) return picture.status().with_context(printable(flags.path, 400));
  in.picture = std::move(picture).value();
  OKIBI_ASSIGN_OR_RETURN(in.plan,
                         image::plan_views(in.picture.width, in.picture.height, in.params));
  OKIBI_ASSIGN_OR_RETURN(in.views, image::make_views(in.picture, in.plan, in.params));
  for (size_t i = 0; !flags.rgb_path.empty() && i < in.views.size(); ++i) {
    in.written.push_back(view_path(flags.rgb_path, i, in.views.size()));
    OKIBI_RETURN_IF_ERROR(write_ppm(in.written.back(), in.views[i]));
  }
  if (flags.json) {
    print_json(in);
  } else {
    print_picture(in);
    print_views(in);
  }
  return ok_status();
}

}  // namespace okibi::apps
