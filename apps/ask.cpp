// `okibi ask`: typed questions about one text. The answers go to standard output, as a table with
// bars or as the API's body; times and token counts to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/ask_many.h"
#include "apps/ask_server.h"
#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/pictures.h"
#include "apps/printable.h"
#include "apps/terminal.h"
#include "decide/question.h"
#include "okibi/decision.h"

namespace okibi::apps {
namespace {

struct Flags {
  EngineFlags engine;
  std::string state;
  bool has_state = false;
  std::string questions_path;
  std::string url, key_path;
  bool json = false;
  bool outside_mass = false;
  bool separate = false;
  int repeat = 1;
  std::vector<std::string> pictures;
  OptionOrder order = OptionOrder::kOff;
  std::string calibration_path;
  bool fresh = false;
  std::string input_path, output_path;
};

constexpr size_t kBarWidth = 30;
constexpr size_t kMostLabelBytes = 40;

size_t n_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

// Ids, keys and levels are strangers' text.
std::string shown(std::string_view text) {
  return printable(text, kMostLabelBytes);
}

std::string option_label(const Question& question, size_t i) {
  const Option& option = question.options[i];
  if (question.type == QuestionType::kScore) {
    return shown(fmt::format("{} {}", i, option.description));
  }
  return shown(option.key);
}

std::string bar(double probability) {
  const size_t n = std::min(kBarWidth, static_cast<size_t>(probability * kBarWidth + 0.5));
  return std::string(n, '#') + std::string(kBarWidth - n, '.');
}

std::string headline(const Question& question, const Answer& answer) {
  std::string line = shown(question.id);
  switch (question.type) {
    case QuestionType::kNoul:
      line += fmt::format(": {:.3f} true", answer.score);
      break;
    case QuestionType::kChoice:
      line += fmt::format(": {} (confidence {:.3f})", option_label(question, answer.best),
                          answer.confidence);
      break;
    case QuestionType::kScore:
      line += fmt::format(": {:.2f} of {} (confidence {:.3f})", answer.score,
                          question.options.size() - 1, answer.confidence);
      break;
  }
  if (answer.outside_mass >= 0) line += fmt::format(", outside {:.3f}", answer.outside_mass);
  if (answer.order_spread > 0) line += fmt::format(", order spread {:.3f}", answer.order_spread);
  return line;
}

void print_table(const DecisionRequest& request, const DecisionResult& result) {
  for (size_t q = 0; q < request.questions.size(); ++q) {
    const Question& question = request.questions[q];
    const Answer& answer = result.answers[q];
    size_t width = 0;
    std::vector<std::string> labels;
    for (size_t i = 0; i < question.options.size(); ++i) {
      labels.push_back(option_label(question, i));
      width = std::max(width, n_characters(labels.back()));
    }
    fmt::print("{}\n", headline(question, answer));
    for (size_t i = 0; i < labels.size(); ++i) {
      fmt::print("  {} {}{} {} {:6.2f} %\n", i == answer.best ? '>' : ' ', labels[i],
                 std::string(width - n_characters(labels[i]), ' '), bar(answer.probabilities[i]),
                 100 * answer.probabilities[i]);
    }
    fmt::print("\n");
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_times(const DecisionResult& result, const std::vector<DecisionTiming>& times) {
  const auto middle = [&](double DecisionTiming::*field) {
    std::vector<double> values;
    for (const DecisionTiming& t : times) values.push_back(t.*field);
    return median(std::move(values));
  };
  fmt::print(
      stderr,
      "prefix {} tokens ({} known) {:.1f} ms | {} questions, {} tokens {:.1f} ms | tokenizing "
      "{:.1f} ms | total {:.1f} ms{}\n",
      result.n_prefix_tokens, result.n_known_prefix_tokens, middle(&DecisionTiming::prefix_ms),
      result.answers.size(), result.n_suffix_tokens, middle(&DecisionTiming::suffix_ms),
      middle(&DecisionTiming::tokenize_ms), middle(&DecisionTiming::total_ms),
      times.size() > 1 ? fmt::format(" (medians of {})", times.size()) : "");
}

bool same_bits(const Answer& a, const Answer& b) {
  return a.label_logits_hash == b.label_logits_hash && a.probabilities == b.probabilities;
}

// Each question in a decision of its own: what it costs to ask them one by one, and whether the
// answers are the same to the bit.
Result<bool> compare_separate(Engine& engine, const DecisionRequest& request,
                              const DecisionResult& together, int repeat) {
  std::vector<double> totals;
  size_t n_same = 0;
  for (int round = 0; round < repeat; ++round) {
    double total_ms = 0;
    n_same = 0;
    for (size_t i = 0; i < request.questions.size(); ++i) {
      DecisionRequest one = request;
      one.questions = {request.questions[i]};
      one.use_kept_answers = false;
      engine.clear_decision_caches();
      OKIBI_ASSIGN_OR_RETURN(const DecisionResult alone, decide(engine, one));
      total_ms += alone.timing.total_ms;
      n_same += same_bits(alone.answers[0], together.answers[i]);
    }
    totals.push_back(total_ms);
  }
  fmt::print(stderr, "one by one: total {:.1f} ms; {} of {} answers have the same bits\n",
             median(std::move(totals)), n_same, request.questions.size());
  return n_same == request.questions.size();
}

// `questions_json`, where wanted: the questions as the file has them, which is what a server reads.
Result<DecisionRequest> read_request(const Flags& flags, std::string* questions_json = nullptr) {
  OKIBI_ASSIGN_OR_RETURN(const std::string json, read_text(flags.questions_path));
  auto file = decision::parse_question_file(json);
  if (!file.ok()) return file.status().with_context(flags.questions_path);
  if (questions_json != nullptr) *questions_json = std::move(file->json);
  DecisionRequest request{.questions = std::move(file->questions),
                          .want_outside_mass = flags.outside_mass,
                          .order = flags.order,
                          .use_kept_answers = !flags.fresh};
  if (!flags.calibration_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.calibration_path));
    auto calibration = parse_calibration(text);
    if (!calibration.ok()) return calibration.status().with_context(flags.calibration_path);
    request.calibration = *calibration;
  }
  const bool needs_state = flags.pictures.empty() && flags.input_path.empty();
  if (!flags.has_state && !file->state && !needs_state) return request;
  if (!flags.has_state) {
    if (!file->state) {
      return invalid_argument(
          "there is no state to ask about: give --state, or a member \"state\" "
          "beside \"questions\" in " +
          flags.questions_path);
    }
    request.state = *std::move(file->state);
  } else if (flags.state.starts_with("@")) {
    OKIBI_ASSIGN_OR_RETURN(request.state, read_text(flags.state.substr(1)));
  } else {
    request.state = flags.state;
  }
  return request;
}

Result<int> ask_by_url(const Flags& flags) {
  ServerCall call{.url = flags.url};
  OKIBI_ASSIGN_OR_RETURN(const DecisionRequest request, read_request(flags, &call.questions_json));
  OKIBI_ASSIGN_OR_RETURN(call.pictures, read_pictures(flags.pictures));
  if (!flags.key_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(call.key, read_text(flags.key_path));
    call.key = call.key.substr(0, call.key.find_first_of(" \r\n"));
  }
  for (int i = 0; i < flags.repeat; ++i) {
    OKIBI_ASSIGN_OR_RETURN(const ServerAnswers answers, ask_server(call, request));
    if (i == 0 && flags.json) fmt::print("{}", answers.body);
    if (i == 0 && !flags.json) print_table(request, answers.result);
    std::fflush(stdout);
    const char* pictures = call.pictures.empty()   ? ""
                           : answers.sent_pictures ? " | pictures sent"
                                                   : " | pictures known by their digests";
    fmt::print(stderr, "{}{}\n", answers.timing, pictures);
  }
  return 0;
}

Result<int> ask(const Flags& flags) {
  if (!flags.url.empty()) return ask_by_url(flags);
  if (flags.engine.options.model_path.empty()) {
    return invalid_argument("there is nobody to ask: give a model, -m FILE, or a server, --url");
  }
  OKIBI_ASSIGN_OR_RETURN(DecisionRequest request, read_request(flags));
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, flags.engine.open());
  const std::string model_name =
      std::filesystem::path(flags.engine.options.model_path).stem().string();
  if (!flags.input_path.empty()) {
    return ask_many(*engine, request, model_name, flags.input_path, flags.output_path);
  }
  std::vector<DecisionTiming> times;
  std::optional<DecisionResult> result;
  bool agrees = true;
  for (int i = 0; i < flags.repeat; ++i) {
    OKIBI_ASSIGN_OR_RETURN(request.pictures, encode_pictures(*engine, flags.pictures));
    for (size_t k = 0; k < flags.pictures.size(); ++k) {
      fmt::print(stderr, "{}\n", describe_picture(flags.pictures[k], request.pictures[k]));
    }
    OKIBI_ASSIGN_OR_RETURN(DecisionResult next, decide(*engine, request));
    if (flags.repeat > 1) print_times(next, {next.timing});
    times.push_back(next.timing);
    for (size_t q = 0; result && q < next.answers.size(); ++q) {
      agrees = agrees && same_bits(next.answers[q], result->answers[q]);
    }
    if (!result) result = std::move(next);
  }
  if (flags.json) {
    fmt::print("{}\n", answers_json(request, *result, model_name));
  } else {
    print_table(request, *result);
  }
  std::fflush(stdout);
  print_times(*result, times);
  if (!agrees) return bad_data("repeated decisions gave different bits: this is a bug of okibi");
  if (flags.separate) {
    OKIBI_ASSIGN_OR_RETURN(agrees, compare_separate(*engine, request, *result, flags.repeat));
    if (!agrees) return bad_data("questions asked alone gave other bits: this is a bug of okibi");
  }
  OKIBI_RETURN_IF_ERROR(flags.engine.write_profile(*engine));
  return 0;
}

}  // namespace

void add_ask(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  flags->engine.options.n_sessions = 1;
  CLI::App* command = app.add_subcommand("ask", "answer typed questions about a text");
  flags->engine.add(command, ActivationType::kBf16);
  command->get_option("--model")->required(false);
  CLI::Option* url =
      command->add_option("--url", flags->url, "ask this server (http://host:port) and no model");
  command->add_option("--key", flags->key_path, "file with the key to show to the server")
      ->type_name("FILE");
  CLI::Option* state =
      command->add_option("--state", flags->state, "what the questions are about; @FILE reads it")
          ->type_name("TEXT|@FILE");
  command
      ->add_option("--questions", flags->questions_path,
                   "the questions, as System One has them: {\"id\": {\"type\": ...}}, or a whole "
                   "body")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--image", flags->pictures,
                   "a picture that the questions are about (PNG, JPEG, WebP); again for more")
      ->type_name("FILE");
  command
      ->add_option("--order", flags->order,
                   "average over orders of the options: off, two (reversed too), all (rotations)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, OptionOrder>{
          {"off", OptionOrder::kOff}, {"two", OptionOrder::kTwo}, {"all", OptionOrder::kAll}}));
  command->add_option("--calibration", flags->calibration_path, "temperatures made by calibrate")
      ->type_name("FILE");
  CLI::Option* output =
      command->add_option("--output", flags->output_path, "JSONL of answers; goes on where it ends")
          ->type_name("FILE");
  CLI::Option* input = command
                           ->add_option("--input", flags->input_path,
                                        "JSONL of states, or of {\"state\", \"images\", \"id\"}: "
                                        "ask about each")
                           ->type_name("FILE")
                           ->needs(output);
  output->needs(input);
  command->add_flag("--fresh", flags->fresh, "do not answer from kept label logits");
  command->add_flag("--json", flags->json, "print the API's response body");
  command->add_flag("--outside-mass", flags->outside_mass,
                    "also tell how much probability lies outside the letters");
  command->add_flag("--separate", flags->separate,
                    "also ask each question alone; compare times and bits");
  command->add_option("--repeat", flags->repeat, "ask this often and report median times")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  // What a server does not get from here yet is refused, not forgotten.
  for (const char* name :
       {"--order", "--calibration", "--fresh", "--input", "--outside-mass", "--separate"}) {
    url->excludes(command->get_option(name));
  }
  command->callback([flags, exit_code, state] {
    flags->has_state = state->count() > 0;
    const Result<int> code = ask(*flags);
    *exit_code = code.ok() ? *code : report(code.status());
  });
}

}  // namespace okibi::apps
