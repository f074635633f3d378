// okibi bench: prefill and decode speed at chosen depths, for one set of options or two. Questions
// about a picture are measured by `bench decisions` (bench_decisions.cpp).
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "apps/bench_decisions.h"
#include "apps/bench_report.h"
#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/terminal.h"

namespace okibi::apps {
namespace {

struct BenchFlags {
  EngineFlags engine;
  BenchPlan plan;
  std::string depths = "0";
  std::string other;  // set B: key=value,...
  std::string csv, json, svg;
};

// "4096", "4k", "1m"
Result<uint32_t> parse_depth(const std::string& text) {
  uint64_t value = 0, unit = 1;
  size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && value < (1u << 30); ++i) {
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  if (i > 0 && i + 1 == text.size() && (text[i] == 'k' || text[i] == 'm')) {
    unit = text[i] == 'k' ? 1024 : 1024 * 1024;
    ++i;
  }
  if (i == 0 || i != text.size() || value * unit > (1u << 30)) {
    return invalid_argument(
        fmt::format("--depth: found \"{}\", expected numbers such as 0,4096,64k", text));
  }
  return static_cast<uint32_t>(value * unit);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

// Set B is set A with some options changed.
Result<EngineOptions> changed_options(EngineFlags flags, const std::string& changes) {
  for (const std::string& change : split(changes, ',')) {
    const size_t eq = change.find('=');
    const std::string key = change.substr(0, eq);
    const std::string value = eq == std::string::npos ? "" : change.substr(eq + 1);
    if (key == "cpu") {
      flags.options.cpu_level = value;
    } else if (key == "kv") {
      flags.kv = value;
    } else if (key == "activations") {
      flags.activations = value;
    } else if (key == "model") {
      flags.options.model_path = value;
    } else if (key == "threads" || key == "batch") {
      OKIBI_ASSIGN_OR_RETURN(uint32_t n, parse_depth(value));
      (key == "threads") ? flags.options.n_threads = static_cast<int>(n)
                         : static_cast<int>(flags.options.max_batch_rows = n);
    } else {
      return invalid_argument(fmt::format(
          "--b: found \"{}\", expected cpu=, threads=, batch=, kv=, activations= or model=",
          change));
    }
  }
  return flags.resolved();
}

Status write_text(const std::string& path, const std::string& text) {
  return path.empty() ? ok_status() : write_file(path, text);
}

Status run(BenchFlags& flags) {
  if (flags.engine.options.model_path.empty()) {
    return invalid_argument("there is nothing to measure: give a model, -m FILE");
  }
  flags.plan.depths.clear();
  for (const std::string& text : split(flags.depths, ',')) {
    OKIBI_ASSIGN_OR_RETURN(uint32_t depth, parse_depth(text));
    flags.plan.depths.push_back(depth);
  }
  if (flags.engine.options.n_ctx == 0) {
    uint32_t deepest = 0;
    for (uint32_t d : flags.plan.depths) deepest = std::max(deepest, d);
    flags.engine.options.n_ctx =
        deepest + std::max(flags.plan.n_prefill, flags.plan.n_decode + 1) + 64;
  }
  flags.engine.options.n_sessions = 1;
  flags.plan.profile = !flags.engine.profile_path.empty();
  flags.plan.sets = {{"A", flags.engine.resolved()}};
  if (!flags.other.empty()) {
    OKIBI_ASSIGN_OR_RETURN(EngineOptions b, changed_options(flags.engine, flags.other));
    flags.plan.sets.push_back({"B", b});
  }
  OKIBI_ASSIGN_OR_RETURN(BenchResult result, run_bench(flags.plan, [](const std::string& what) {
                           std::fprintf(stderr, "%s\n", what.c_str());
                         }));
  BenchContext context{.machine = machine_name()};
  context.model_file = std::filesystem::path(flags.engine.options.model_path).filename().string();
  OKIBI_ASSIGN_OR_RETURN(context.model_sha256, file_sha256(flags.engine.options.model_path));
  std::fputs(bench_table(flags.plan, result).c_str(), stdout);
  if (flags.plan.profile) {
    std::fputs(result.profile.table.c_str(), stdout);
    OKIBI_RETURN_IF_ERROR(write_text(flags.engine.profile_path, result.profile.chrome_json));
  }
  OKIBI_RETURN_IF_ERROR(write_text(flags.csv, bench_csv(context, flags.plan, result)));
  OKIBI_RETURN_IF_ERROR(write_text(flags.json, bench_json(context, flags.plan, result)));
  return write_text(flags.svg, bench_svg(context, flags.plan, result));
}

}  // namespace

void add_bench(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("bench", "measure prefill and decode; with --b, A-B-B-A");
  auto flags = std::make_shared<BenchFlags>();
  flags->engine.add(command);
  command->get_option("--model")->required(false);  // `bench decisions` has its own
  command->add_option("--depth", flags->depths, "tokens of context before, e.g. 0,4k,16k");
  command->add_option("--prefill", flags->plan.n_prefill, "tokens of the prefill test; 0: none");
  command->add_option("--decode", flags->plan.n_decode, "tokens of the decode test; 0: none");
  command->add_option("--rounds", flags->plan.n_rounds, "rounds of A-B-B-A")
      ->check(CLI::Range(1, 100));
  command->add_option("--samples", flags->plan.n_samples_per_block, "samples per block")
      ->check(CLI::Range(1, 100));
  command->add_option("--b", flags->other, "set B: what differs, e.g. cpu=avx2,threads=1");
  command->add_option("--csv", flags->csv, "write the rows to this file");
  command->add_option("--json", flags->json, "write everything to this file");
  command->add_option("--svg", flags->svg, "write a plot to this file");
  add_bench_decisions(command, exit_code);
  command->callback([flags, command, exit_code] {
    if (!command->get_subcommands().empty()) return;
    const Status status = run(*flags);
    if (!status.ok()) *exit_code = report(status);
  });
}

}  // namespace okibi::apps
