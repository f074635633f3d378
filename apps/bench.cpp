// okibi bench: prefill and decode speed at chosen depths, for one set of options or two. Questions
// about a picture are measured by `bench decisions` (bench_decisions.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <utility>

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
  std::string fill = "prefill";
  std::string other;      // set B: key=value,...
  bool switches = false;  // --abba
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

// Running this many tokens takes minutes; many times more take hours.
constexpr uint32_t kDeepestPrefill = 64 * 1024;
// Two engines at this depth fit where one does at twice of it.
constexpr uint32_t kDeepestSwitches = 512 * 1024;

// The sets of --abba: what each of the switches that long-context models have is worth.
constexpr std::pair<const char*, const char*> kSwitches[] = {
    {"pool-anew", "qsa-pooled=off"},
    {"masked", "qsa-attend=masked"},
    {"cells", "qsa-topk=cells"},
    {"all-off", "qsa-pooled=off,qsa-attend=masked,qsa-topk=cells"}};

Status set_one_of(std::string* to, const std::string& value,
                  const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    return invalid_argument(
        fmt::format("--b: found \"{}\", expected {}", value, fmt::join(allowed, " or ")));
  }
  *to = value;
  return ok_status();
}

// Whether the changes are of switches only, none of which changes a bit of a result.
bool is_same_work(const std::string& changes) {
  const std::vector<std::string> parts = split(changes, ',');
  return std::all_of(parts.begin(), parts.end(),
                     [](const std::string& change) { return change.starts_with("qsa-"); });
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
      OKIBI_RETURN_IF_ERROR(set_one_of(&flags.kv, value, kKvNames));
    } else if (key == "activations") {
      OKIBI_RETURN_IF_ERROR(set_one_of(&flags.activations, value, kActivationNames));
    } else if (key == "qsa-pooled") {
      OKIBI_RETURN_IF_ERROR(set_one_of(&flags.pooled, value, {"on", "off"}));
    } else if (key == "qsa-attend") {
      OKIBI_RETURN_IF_ERROR(set_one_of(&flags.attend, value, {"selected", "masked"}));
    } else if (key == "qsa-topk") {
      OKIBI_RETURN_IF_ERROR(set_one_of(&flags.topk, value, {"blocks", "cells"}));
    } else if (key == "model") {
      flags.options.model_path = value;
    } else if (key == "threads" || key == "batch") {
      OKIBI_ASSIGN_OR_RETURN(uint32_t n, parse_depth(value));
      (key == "threads") ? flags.options.n_threads = static_cast<int>(n)
                         : static_cast<int>(flags.options.max_batch_rows = n);
    } else {
      return invalid_argument(fmt::format(
          "--b: found \"{}\", expected cpu=, threads=, batch=, kv=, activations=, qsa-pooled=, "
          "qsa-attend=, qsa-topk= or model=",
          change));
    }
  }
  return flags.resolved();
}

Status write_text(const std::string& path, const std::string& text) {
  return path.empty() ? ok_status() : write_file(path, text);
}

// The depths in order, each once; refuses what would take hours.
Status read_depths(BenchFlags& flags) {
  std::vector<uint32_t>& depths = flags.plan.depths;
  depths.clear();
  for (const std::string& text : split(flags.depths, ',')) {
    OKIBI_ASSIGN_OR_RETURN(uint32_t depth, parse_depth(text));
    depths.push_back(depth);
  }
  if (depths.empty()) return invalid_argument("--depth: no depth, expected e.g. 0,4k,64k");
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  flags.plan.fill = flags.fill == "random" ? BenchFill::kRandom : BenchFill::kPrefill;
  if (flags.plan.fill == BenchFill::kPrefill && depths.back() > kDeepestPrefill) {
    return invalid_argument(
        fmt::format("--depth: running {} tokens to get there takes too long, the limit is {}; use "
                    "--fill random, which puts random keys, values and state there",
                    depths.back(), kDeepestPrefill));
  }
  return ok_status();
}

Status read_sets(BenchFlags& flags) {
  flags.engine.options.n_sessions = 1;
  flags.plan.sets = {{"A", flags.engine.resolved()}};
  std::vector<std::pair<std::string, std::string>> others;
  if (!flags.other.empty()) others.emplace_back("B", flags.other);
  if (flags.switches) {
    others.assign(std::begin(kSwitches), std::end(kSwitches));
    flags.plan.deepest_pair = kDeepestSwitches;
  }
  for (const auto& [label, changes] : others) {
    OKIBI_ASSIGN_OR_RETURN(EngineOptions b, changed_options(flags.engine, changes));
    flags.plan.sets.push_back({label, b, is_same_work(changes)});
  }
  return ok_status();
}

// Sets that do the same work must come to the same bits.
Status check_hashes(const BenchResult& result) {
  for (const BenchComparison& c : result.comparisons) {
    if (c.is_same_work && !c.is_same_hash) {
      return bad_data(
          fmt::format("set {} at depth {}: its logits are not those of set A, and its "
                      "switches should not change a bit",
                      c.set, c.depth));
    }
  }
  return ok_status();
}

Status run(BenchFlags& flags) {
  if (flags.engine.options.model_path.empty()) {
    return invalid_argument("there is nothing to measure: give a model, -m FILE");
  }
  OKIBI_RETURN_IF_ERROR(read_depths(flags));
  OKIBI_RETURN_IF_ERROR(read_sets(flags));
  flags.plan.profile = !flags.engine.profile_path.empty();
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
  OKIBI_RETURN_IF_ERROR(write_text(flags.svg, bench_svg(context, flags.plan, result)));
  return check_hashes(result);
}

}  // namespace

void add_bench(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("bench", "measure prefill and decode; with --b, A-B-B-A");
  auto flags = std::make_shared<BenchFlags>();
  flags->engine.add(command);
  command->get_option("--model")->required(false);  // `bench decisions` has its own
  command->add_option("--depth", flags->depths, "tokens of context before, e.g. 0,4k,16k");
  command
      ->add_option("--fill", flags->fill,
                   "what that context is: prefill: tokens run through the model; random: random "
                   "keys, values and state, for depths over 64k")
      ->check(CLI::IsMember({"prefill", "random"}))
      ->capture_default_str();
  command->add_option("--prefill", flags->plan.n_prefill, "tokens of the prefill test; 0: none");
  command->add_option("--decode", flags->plan.n_decode, "tokens of the decode test; 0: none");
  command->add_option("--rounds", flags->plan.n_rounds, "rounds of A-B-B-A")
      ->check(CLI::Range(1, 100));
  command->add_option("--samples", flags->plan.n_samples_per_block, "samples per block")
      ->check(CLI::Range(1, 100));
  CLI::Option* other =
      command->add_option("--b", flags->other, "set B: what differs, e.g. cpu=avx2,threads=1");
  command
      ->add_flag("--abba", flags->switches,
                 "against set A, one after the other: each --qsa switch off, and all; up to 512k")
      ->excludes(other);
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
