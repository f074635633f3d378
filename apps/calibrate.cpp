// `okibi calibrate`: fits one temperature per question type on labelled questions and writes the
// calibration file that ask and serve apply.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/pictures.h"
#include "apps/progress.h"
#include "apps/state_lines.h"
#include "apps/terminal.h"
#include "decide/calibration.h"
#include "decide/question.h"

namespace okibi::apps {
namespace {

struct Flags {
  EngineFlags engine;
  std::string data_path, questions_path, out_path;
};

struct TypeRow {
  QuestionType type;
  const char* name;
  double Calibration::*temperature;
};
constexpr TypeRow kTypes[] = {{QuestionType::kNoul, "noul", &Calibration::noul},
                              {QuestionType::kChoice, "choice", &Calibration::choice},
                              {QuestionType::kScore, "score", &Calibration::score}};

// Fewer labelled questions of a type say nothing about a temperature; it stays 1.
constexpr size_t kLeastSamples = 30;

using Samples = std::vector<decision::LabelledLogits>;

// Log-probabilities are logits up to a constant, which no softmax sees.
decision::LabelledLogits sample_of(const Answer& answer, int64_t right) {
  std::vector<float> logits;
  for (double p : answer.probabilities) {
    logits.push_back(static_cast<float>(std::log(std::max(p, 1e-30))));
  }
  return {{std::move(logits)}, static_cast<size_t>(right)};
}

Status add_line(Engine& engine, const StateLine& line, const std::vector<Question>& questions,
                std::vector<Samples>* samples) {
  DecisionRequest request{.state = line.state};
  request.questions = line.questions.empty() ? questions : line.questions;
  if (request.questions.empty() || line.right.empty()) {
    return invalid_argument(
        "a labelled line needs \"answers\", and \"questions\" there or by --questions");
  }
  OKIBI_ASSIGN_OR_RETURN(request.pictures, encode_pictures(engine, line.pictures));
  OKIBI_ASSIGN_OR_RETURN(const DecisionResult result, decide(engine, request));
  for (size_t i = 0; i < request.questions.size(); ++i) {
    if (line.right[i] < 0 || request.questions[i].options.size() < 2) continue;
    const auto type = static_cast<size_t>(request.questions[i].type);
    (*samples)[type].push_back(sample_of(result.answers[i], line.right[i]));
  }
  return ok_status();
}

Result<int> calibrate(const Flags& flags) {
  std::vector<Question> questions;
  if (!flags.questions_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string json, read_text(flags.questions_path));
    auto file = decision::parse_question_file(json);
    if (!file.ok()) return file.status().with_context(flags.questions_path);
    questions = std::move(file->questions);
  }
  OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.data_path));
  const std::vector<std::string_view> lines = split_lines(text);
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, flags.engine.open());
  const std::string folder = std::filesystem::path(flags.data_path).parent_path().string();
  std::vector<Samples> samples(std::size(kTypes));
  Progress progress("asking", "lines");
  for (size_t i = 0; i < lines.size(); ++i) {
    progress.update(static_cast<double>(i), static_cast<double>(lines.size()));
    auto line = parse_state_line(lines[i], folder, questions);
    const Status status = line.ok() ? add_line(*engine, *line, questions, &samples) : line.status();
    if (!status.ok()) return status.with_context(fmt::format("{} line {}", flags.data_path, i + 1));
  }
  progress.finish();
  Calibration calibration;
  calibration.model = std::filesystem::path(flags.engine.options.model_path).stem().string();
  fmt::print("{:8} {:>9} {:>12} {:>12} {:>10} {:>10}\n", "type", "questions", "temperature", "nll",
             "ECE at 1", "ECE");
  for (const TypeRow& row : kTypes) {
    const Samples& s = samples[static_cast<size_t>(row.type)];
    const double t = s.size() < kLeastSamples ? 1 : decision::fit_temperature(s);
    calibration.*row.temperature = t;
    fmt::print("{:8} {:9} {:12.3f} {:12.4f} {:10.4f} {:10.4f}\n", row.name, s.size(), t,
               decision::mean_nll(s, t), decision::calibration_error(s, 1),
               decision::calibration_error(s, t));
  }
  OKIBI_RETURN_IF_ERROR(write_file(flags.out_path, calibration_json(calibration)));
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  flags->engine.options.n_sessions = 1;
  CLI::App* command =
      app.add_subcommand("calibrate", "fit temperatures per question type on labelled questions");
  flags->engine.add(command, ActivationType::kBf16);
  command
      ->add_option("--data", flags->data_path,
                   "JSONL: {\"state\", \"images\", \"questions\", \"answers\": {id: right}} a line")
      ->required()
      ->type_name("FILE");
  command->add_option("--questions", flags->questions_path, "questions for lines without")
      ->type_name("FILE");
  command->add_option("--out", flags->out_path, "calibration file to write")
      ->required()
      ->type_name("FILE");
  command->callback([flags, exit_code] {
    const Result<int> code = calibrate(*flags);
    *exit_code = code.ok() ? *code : report(code.status());
  });
}

}  // namespace okibi::apps
