#include "apps/bench_decisions.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "apps/bench_decisions_report.h"
#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/terminal.h"
#include "decide/question.h"

namespace okibi::apps {
namespace {

constexpr uint32_t kDefaultContext = 4096;

struct Flags {
  EngineFlags engine;
  std::string image_path, questions_path, out_folder;
  uint32_t n_repeats = 5;
};

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

Result<DecisionsPlan> read_plan(const Flags& flags) {
  DecisionsPlan plan{.options = flags.engine.resolved(), .n_repeats = flags.n_repeats};
  if (plan.options.mmproj_path.empty()) {
    return invalid_argument("the model cannot look at the picture: give its vision file, --mmproj");
  }
  if (plan.options.vision_cache_mib == 0 || plan.options.state_cache_mib == 0 ||
      plan.options.answer_cache_mib == 0) {
    return invalid_argument(
        "there is no reuse to measure with a budget of 0: expected --vision-cache, --state-cache "
        "and --answer-cache above 0");
  }
  if (plan.options.n_ctx == 0) plan.options.n_ctx = kDefaultContext;
  OKIBI_ASSIGN_OR_RETURN(plan.image, read_bytes(flags.image_path));
  OKIBI_ASSIGN_OR_RETURN(const std::string json, read_text(flags.questions_path));
  auto file = decision::parse_question_file(json);
  if (!file.ok()) return file.status().with_context(flags.questions_path);
  plan.questions = std::move(file->questions);
  plan.state = file->state.value_or("");
  return plan;
}

Result<DecisionsFiles> hash_files(const Flags& flags) {
  const EngineOptions& options = flags.engine.options;
  DecisionsFiles files{.image = name_of(flags.image_path),
                       .questions = name_of(flags.questions_path),
                       .model = name_of(options.model_path),
                       .projector = name_of(options.mmproj_path)};
  OKIBI_ASSIGN_OR_RETURN(files.image_sha256, file_sha256(flags.image_path));
  OKIBI_ASSIGN_OR_RETURN(files.questions_sha256, file_sha256(flags.questions_path));
  OKIBI_ASSIGN_OR_RETURN(files.model_sha256, file_sha256(options.model_path));
  OKIBI_ASSIGN_OR_RETURN(files.projector_sha256, file_sha256(options.mmproj_path));
  OKIBI_ASSIGN_OR_RETURN(files.binary_sha256, file_sha256("/proc/self/exe"));
  return files;
}

Status write_reports(const std::string& folder, const DecisionsFiles& files,
                     const DecisionsPlan& plan, const DecisionsResult& result) {
  if (folder.empty()) return ok_status();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return unavailable(folder + ": cannot be made: " + error.message());
  const std::string base = (std::filesystem::path(folder) / "decisions").string();
  OKIBI_RETURN_IF_ERROR(write_file(base + ".json", decisions_json(files, plan, result)));
  OKIBI_RETURN_IF_ERROR(write_file(base + ".csv", decisions_csv(files, result)));
  return write_file(base + ".svg", decisions_svg(files, result));
}

Status run(const Flags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const DecisionsPlan plan, read_plan(flags));
  OKIBI_ASSIGN_OR_RETURN(const DecisionsFiles files, hash_files(flags));
  OKIBI_ASSIGN_OR_RETURN(const DecisionsResult result,
                         run_decisions_bench(plan, [](const std::string& what) {
                           std::fprintf(stderr, "%s\n", what.c_str());
                         }));
  std::fputs(decisions_table(files, plan, result).c_str(), stdout);
  std::fflush(stdout);
  OKIBI_RETURN_IF_ERROR(write_reports(flags.out_folder, files, plan, result));
  const DecisionsAgreement& a = result.agreement;
  if (a.holds()) return ok_status();
  return bad_data(
      fmt::format("of {} answers, {} chose another option and {} had other bits than the first, "
                  "probabilities differ by up to {:.3g}; expected none: this is a bug of okibi",
                  a.n_answers, a.n_other_choices, a.n_other_bits, a.largest_difference));
}

}  // namespace

void add_bench_decisions(CLI::App* bench, int* exit_code) {
  CLI::App* command = bench->add_subcommand(
      "decisions", "questions about a picture, with reuse off-on-on-off; fails if a bit differs");
  auto flags = std::make_shared<Flags>();
  flags->engine.add(command, ActivationType::kBf16);
  command->add_option("--image", flags->image_path, "the picture")->required()->type_name("FILE");
  command
      ->add_option("--questions", flags->questions_path,
                   "the questions, as `okibi ask` reads them; with a state beside them or none")
      ->required()
      ->type_name("FILE");
  command->add_option("--repeat", flags->n_repeats, "repeats in each block, and rounds of cases")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--out", flags->out_folder,
                   "write decisions.json, decisions.csv and decisions.svg into this folder")
      ->type_name("DIR");
  command->callback([flags, exit_code] {
    const Status status = run(*flags);
    if (!status.ok()) *exit_code = report(status);
  });
}

}  // namespace okibi::apps
