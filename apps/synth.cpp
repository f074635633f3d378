// `okibi synth`: writes random-weight files in the shape of real models.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "model/synth/random_rows.h"
#include "model/synth/write.h"

namespace okibi::apps {
namespace {

struct SynthFlags {
  std::string shape, out, type = "Q4_K";
  uint64_t seed = 1;
  bool no_data = false;
};

Status write_file(const model::SynthPlan& plan, const std::string& path, DType type,
                  const SynthFlags& flags) {
  model::SynthOptions options;
  options.type = type;
  options.seed = flags.seed;
  options.with_data = !flags.no_data;
  const bool shows_progress = isatty(STDERR_FILENO) == 1;
  if (shows_progress) {
    options.progress = [&](uint64_t done, uint64_t total) {
      fmt::print(stderr, "\r{}: {:3.0f} % of {:.1f} MiB", path,
                 100.0 * static_cast<double>(done) / static_cast<double>(total),
                 static_cast<double>(total) / (1 << 20));
    };
  }
  OKIBI_ASSIGN_OR_RETURN(const model::SynthSummary summary,
                         model::write_synth(plan, path, options));
  if (shows_progress) fmt::print(stderr, "\r\033[K");
  fmt::print("{}: {}, {} tensors, {} parameters, {:.1f} MiB of weights{}\n", path, name_of(type),
             summary.n_tensors, summary.n_parameters,
             static_cast<double>(summary.data_bytes) / (1 << 20),
             flags.no_data ? " (a hole: all zero)" : "");
  return ok_status();
}

Status synth(const SynthFlags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const model::SynthShape shape, model::make_synth_shape(flags.shape));
  const auto type = dtype_from_name(flags.type);
  if (!type) return invalid_argument("unknown type \"" + flags.type + "\"");
  OKIBI_RETURN_IF_ERROR(write_file(shape.text, flags.out, *type, flags));
  if (!shape.has_vision()) return ok_status();
  const std::filesystem::path out(flags.out);
  const auto beside = out.parent_path() / ("mmproj-" + out.filename().string());
  return write_file(shape.vision, beside.string(), model::synth_vision_type(*type), flags);
}

}  // namespace

void add_synth(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<SynthFlags>();
  std::string names;
  for (const std::string_view name : model::synth_shape_names()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  CLI::App* command = app.add_subcommand(
      "synth", "Write a random-weight file in the shape of a real model, to measure speed with");
  command->add_option("SHAPE", flags->shape, names)->required();
  command
      ->add_option("OUT", flags->out, "file to write; a vision file becomes mmproj-OUT beside it")
      ->required();
  command->add_option("--type", flags->type, "type of the matrices")->capture_default_str();
  command->add_option("--seed", flags->seed, "seed of the weights")->capture_default_str();
  command->add_flag("--no-data", flags->no_data,
                    "leave the weights out: a sparse file with every key and shape");
  command->callback([flags, exit_code] {
    const Status status = synth(*flags);
    *exit_code = status.ok() ? 0 : report(status);
  });
}

}  // namespace okibi::apps
