// `okibi inspect`: what is in a GGUF file, as tables or as JSON. Works on any file the reader
// accepts, whether or not an engine knows its architecture. Pictures go to inspect_picture.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/inspect_picture.h"
#include "apps/printable.h"
#include "apps/progress.h"
#include "apps/split_ple.h"
#include "apps/terminal.h"
#include "gguf/check_data.h"
#include "gguf/reader.h"
#include "gguf/value.h"
#include "okibi/engine.h"

namespace okibi::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownElements = 8;  // of an array in the table
constexpr size_t kJsonElements = 64;  // longer arrays are shortened in JSON
constexpr size_t kJsonShortened = 16;
constexpr size_t kShownText = 120;
constexpr size_t kJsonText = 1 << 20;

struct InspectFlags {
  std::string path, out;
  uint32_t n_ctx = 0;  // of the memory plan; 0: what fits
  bool json = false, tensors = false, check_tensors = false, split_ple = false;
  InspectPictureFlags picture;  // path and json are those above
};

// --- values ----------------------------------------------------------------------------------

Json scalar_json(gguf::ValueType type, uint64_t bits) {
  using gguf::ValueType;
  switch (type) {
    case ValueType::kI8:
      return static_cast<int8_t>(bits);
    case ValueType::kI16:
      return static_cast<int16_t>(bits);
    case ValueType::kI32:
      return static_cast<int32_t>(bits);
    case ValueType::kI64:
      return static_cast<int64_t>(bits);
    case ValueType::kBool:
      return bits != 0;
    case ValueType::kF32: {
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case ValueType::kF64: {
      double value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    default:
      return bits;
  }
}

Json element_json(const gguf::Value& array, uint64_t i) {
  if (array.element_type == gguf::ValueType::kString) {
    return std::string(array.texts[i].substr(0, kJsonText));
  }
  return scalar_json(array.element_type, gguf::raw_element(array, i));
}

Json value_json(const gguf::Value& value) {
  if (value.type == gguf::ValueType::kString) return std::string(value.text.substr(0, kJsonText));
  if (value.type != gguf::ValueType::kArray) return scalar_json(value.type, value.bits);
  const uint64_t n = value.n_elements <= kJsonElements ? value.n_elements : kJsonShortened;
  Json elements = Json::array();
  for (uint64_t i = 0; i < n; ++i) elements.push_back(element_json(value, i));
  return elements;
}

// Shortest text that reads back as the same number; floats would show their double expansion.
std::string scalar_text(gguf::ValueType type, uint64_t bits) {
  if (type == gguf::ValueType::kF32) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return fmt::format("{}", value);
  }
  return scalar_json(type, bits).dump();
}

std::string value_text(const gguf::Value& value) {
  if (value.type == gguf::ValueType::kString) return printable(value.text, kShownText);
  if (value.type != gguf::ValueType::kArray) return scalar_text(value.type, value.bits);
  std::string text = "[";
  const uint64_t n = std::min<uint64_t>(value.n_elements, kShownElements);
  for (uint64_t i = 0; i < n; ++i) {
    text += i > 0 ? ", " : "";
    if (value.element_type == gguf::ValueType::kString) {
      text += '"' + printable(value.texts[i], 24) + '"';
    } else {
      text += scalar_text(value.element_type, gguf::raw_element(value, i));
    }
  }
  return text + (value.n_elements > n ? fmt::format(", ... {} in all]", value.n_elements) : "]");
}

// --- totals ----------------------------------------------------------------------------------

struct TypeTotal {
  uint64_t n_tensors = 0, n_parameters = 0, n_bytes = 0;
};

struct Totals {
  std::vector<std::pair<DType, TypeTotal>> by_type;  // most bytes first
  TypeTotal all;
};

Totals count_totals(const gguf::File& file) {
  std::map<DType, TypeTotal> by_type;
  Totals totals;
  for (const gguf::TensorInfo& info : file.tensors()) {
    for (TypeTotal* total : {&by_type[info.type], &totals.all}) {
      total->n_tensors += 1;
      total->n_parameters += info.n_elements();
      total->n_bytes += info.n_bytes;
    }
  }
  totals.by_type.assign(by_type.begin(), by_type.end());
  std::sort(totals.by_type.begin(), totals.by_type.end(),
            [](const auto& a, const auto& b) { return a.second.n_bytes > b.second.n_bytes; });
  return totals;
}

// What the engine would need to run the file, or why it would not run it.
Result<MemoryPlan> memory_needed(const InspectFlags& flags) {
  return Engine::plan({.model_path = flags.path, .n_ctx = flags.n_ctx, .n_sessions = 1});
}

// --- output ----------------------------------------------------------------------------------

std::string shape_words(const gguf::TensorInfo& info) {
  return info.n_dims == 0 ? "scalar" : gguf::shape_text(info);
}

void print_metadata(const gguf::File& file) {
  fmt::print("\nMetadata: {} keys\n", file.entries().size());
  size_t width = 0;
  for (const auto& entry : file.entries()) width = std::max(width, entry.key.size());
  width = std::min<size_t>(width, 48);
  for (const auto& entry : file.entries()) {
    fmt::print("  {:<{}}  {:<15}  {}\n", printable(entry.key, 200), width,
               gguf::describe_type(entry.value), value_text(entry.value));
  }
}

void print_tensors(const gguf::File& file) {
  fmt::print("\nTensors: {}\n", file.tensors().size());
  size_t width = 0;
  for (const auto& info : file.tensors()) width = std::max(width, info.name.size());
  width = std::min<size_t>(width, 48);
  for (const auto& info : file.tensors()) {
    fmt::print("  {:<{}}  {:<7}  {:<24}  {:>10}\n", printable(info.name, 200), width,
               name_of(info.type), shape_words(info), format_bytes(info.n_bytes));
  }
}

void print_totals(const Totals& totals) {
  fmt::print("\n  {:<8} {:>8} {:>12} {:>12} {:>8}\n", "type", "tensors", "parameters", "bytes",
             "bits/w");
  const auto line = [](std::string_view name, const TypeTotal& t) {
    const double bits = t.n_parameters == 0 ? 0.0
                                            : 8.0 * static_cast<double>(t.n_bytes) /
                                                  static_cast<double>(t.n_parameters);
    fmt::print("  {:<8} {:>8} {:>12} {:>12} {:>8.2f}\n", name, t.n_tensors,
               count_text(t.n_parameters), format_bytes(t.n_bytes), bits);
  };
  for (const auto& [type, total] : totals.by_type) line(name_of(type), total);
  line("total", totals.all);
}

void print_tables(const gguf::File& file, const InspectFlags& flags) {
  const Totals totals = count_totals(file);
  fmt::print("{}: GGUF version {}, {}{}\n", printable(file.path(), 400), file.version(),
             format_bytes(file.file_bytes()),
             file.n_shards() > 1 ? fmt::format(" in {} shards", file.n_shards()) : "");
  print_metadata(file);
  if (flags.tensors) print_tensors(file);
  print_totals(totals);
  const Result<MemoryPlan> memory = memory_needed(flags);
  if (memory.ok()) {
    fmt::print("\nMemory needed for one session of {} tokens{}\n{}", memory->n_ctx,
               memory->fits() ? "" : ": does not fit here", memory->table());
  } else {
    fmt::print("\nThis build does not run the file: {}\n", memory.status().message());
  }
  for (const std::string& warning : file.warnings()) fmt::print("warning: {}\n", warning);
}

void print_json(const gguf::File& file, const InspectFlags& flags) {
  const Totals totals = count_totals(file);
  Json root;
  root["path"] = file.path();
  root["version"] = file.version();
  root["n_shards"] = file.n_shards();
  root["file_bytes"] = file.file_bytes();
  root["n_parameters"] = totals.all.n_parameters;
  root["tensor_bytes"] = totals.all.n_bytes;
  Json& metadata = root["metadata"] = Json::object();
  for (const auto& entry : file.entries()) {
    Json item = {{"type", gguf::value_type_name(entry.value.type)}};
    if (entry.value.type == gguf::ValueType::kArray) {
      item["element_type"] = gguf::value_type_name(entry.value.element_type);
      item["n_elements"] = entry.value.n_elements;
    }
    item["value"] = value_json(entry.value);
    metadata[std::string(entry.key)] = std::move(item);
  }
  Json& types = root["types"] = Json::object();
  for (const auto& [type, total] : totals.by_type) {
    types[std::string(name_of(type))] = {{"n_tensors", total.n_tensors},
                                         {"n_parameters", total.n_parameters},
                                         {"bytes", total.n_bytes}};
  }
  Json& tensors = root["tensors"] = Json::array();
  for (const auto& info : file.tensors()) {
    Json shape = Json::array();
    for (int i = 0; i < info.n_dims; ++i) shape.push_back(info.ne[i]);
    tensors.push_back({{"name", info.name},
                       {"type", name_of(info.type)},
                       {"shape", std::move(shape)},
                       {"bytes", info.n_bytes},
                       {"shard", info.shard},
                       {"offset", info.offset}});
  }
  const Result<MemoryPlan> plan = memory_needed(flags);
  Json& memory = root["memory"] = Json::object();
  if (plan.ok()) {
    memory["n_ctx"] = plan->n_ctx;
    for (const MemoryPlan::Row& row : plan->rows) memory["rows"][row.name] = row.bytes;
    memory["needed_bytes"] = plan->needed_bytes;
    memory["available_bytes"] = plan->available_bytes;
    memory["fits"] = plan->fits();
  } else {
    memory["refused"] = plan.status().message();
  }
  root["warnings"] = file.warnings();
  // Names and texts may hold any bytes; JSON may not.
  fmt::print("{}\n", root.dump(2, ' ', false, Json::error_handler_t::replace));
}

Status check_contents(const gguf::File& file) {
  constexpr double kMiB = 1 << 20;
  double total = 0, done = 0;
  for (const auto& info : file.tensors()) total += static_cast<double>(info.n_bytes) / kMiB;
  Progress progress("checking", "MiB");
  for (const auto& info : file.tensors()) {
    progress.update(done, total, info.name);
    OKIBI_RETURN_IF_ERROR(gguf::check_tensor_data(file, info).with_context(file.path()));
    file.release(info);
    done += static_cast<double>(info.n_bytes) / kMiB;
  }
  return ok_status();
}

Status inspect_gguf(const InspectFlags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(flags.path));
  if (flags.json) {
    print_json(file, flags);
  } else {
    print_tables(file, flags);
  }
  if (flags.check_tensors) {
    OKIBI_RETURN_IF_ERROR(check_contents(file));
    if (!flags.json) fmt::print("All numbers and scales are finite.\n");
  }
  return ok_status();
}

Status inspect(const InspectFlags& flags) {
  if (flags.split_ple) {
    if (flags.out.empty()) return invalid_argument("--split-ple needs a file to write: IN OUT");
    return split_ple(flags.path, flags.out);
  }
  if (!flags.out.empty()) {
    return invalid_argument(printable(flags.out, 400) +
                            ": a second file is for --split-ple, which writes it");
  }
  const bool about_picture = !flags.picture.rgb_path.empty() ||
                             !flags.picture.mmproj_path.empty() ||
                             !flags.picture.model_path.empty();
  const bool about_gguf = flags.tensors || flags.check_tensors || flags.n_ctx != 0;
  const bool is_picture = is_picture_file(flags.path);
  if (is_picture && about_gguf) {
    return invalid_argument(
        printable(flags.path, 400) +
        " is a picture; --ctx, --tensors and --check-tensors are for GGUF files");
  }
  if (!is_picture && !about_picture) return inspect_gguf(flags);
  InspectPictureFlags picture = flags.picture;
  picture.path = flags.path;
  picture.json = flags.json;
  return inspect_picture(picture);
}

}  // namespace

void add_inspect(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a GGUF file holds and needs, or what a picture becomes");
  command
      ->add_option("FILE", flags->path,
                   "a .gguf file (of a split model, any shard), or a PNG, JPEG or WebP picture")
      ->required();
  command->add_option("OUT", flags->out, "file to write, with --split-ple");
  command->add_flag("--split-ple", flags->split_ple,
                    "write FILE to OUT with one tensor per head of the n-gram table");
  command->add_option("--ctx", flags->n_ctx, "tokens of context that memory is planned for");
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->add_flag("--json", flags->json, "print everything as JSON");
  command->add_flag("--check-tensors", flags->check_tensors,
                    "read all weights and fail on infinities and NaN");
  command->add_option("--rgb", flags->picture.rgb_path,
                      "of a picture: write the views as PPM (several: OUT-1.ppm, OUT-2.ppm, ...)");
  command->add_option("-m,--model", flags->picture.model_path,
                      "of a picture: the model that looks at it");
  command->add_option("--mmproj", flags->picture.mmproj_path,
                      "of a picture: the vision file of that model");
  command->callback([flags, exit_code] {
    const Status status = inspect(*flags);
    *exit_code = status.ok() ? 0 : report(status);
    if (status.code() == StatusCode::kCancelled) *exit_code = kExitInterrupted;
  });
}

}  // namespace okibi::apps
