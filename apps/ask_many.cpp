#include "apps/ask_many.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/pictures.h"
#include "apps/progress.h"
#include "apps/state_lines.h"
#include "apps/terminal.h"
#include "base/clock.h"

namespace okibi::apps {
namespace {

// How many whole lines an output file has and how many bytes they take.
struct Written {
  size_t n_lines = 0;
  uint64_t n_bytes = 0;
};
Result<Written> read_written(const std::string& path) {
  Written written;
  if (!std::filesystem::exists(path)) return written;
  OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    const std::string expected = fmt::format("{{\"line\": {},", written.n_lines);
    if (text.compare(written.n_bytes, expected.size(), expected) != 0) {
      return bad_data(
          fmt::format("{} line {} does not begin with {}: it is not the output of this "
                      "command, and is left as it is",
                      path, written.n_lines + 1, expected));
    }
    ++written.n_lines;
    written.n_bytes = at + 1;
  }
  return written;
}

Result<std::string> answer_line(Engine& engine, const DecisionRequest& questions,
                                const std::string& model_name, std::string_view text,
                                const std::string& folder, size_t number) {
  OKIBI_ASSIGN_OR_RETURN(const StateLine line, parse_state_line(text, folder, questions.questions));
  DecisionRequest request = questions;
  request.state = line.state;
  if (!line.questions.empty()) request.questions = line.questions;
  OKIBI_ASSIGN_OR_RETURN(request.pictures, encode_pictures(engine, line.pictures));
  OKIBI_ASSIGN_OR_RETURN(const DecisionResult result, decide(engine, request));
  const std::string body = answers_json(request, result, model_name);
  const std::string id = line.id.empty() ? "" : fmt::format("\"id\": {}, ", line.id);
  return fmt::format("{{\"line\": {}, {}{}\n", number, id, body.substr(1));
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Result<int> ask_many(Engine& engine, const DecisionRequest& questions,
                     const std::string& model_name, const std::string& input_path,
                     const std::string& output_path) {
  OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(input_path));
  const std::vector<std::string_view> lines = split_lines(text);
  OKIBI_ASSIGN_OR_RETURN(const Written written, read_written(output_path));
  if (written.n_lines > lines.size()) {
    return bad_data(fmt::format("{} has {} answers, {} has {} states: they do not belong together",
                                output_path, written.n_lines, input_path, lines.size()));
  }
  if (std::filesystem::exists(output_path)) {
    std::error_code error;
    std::filesystem::resize_file(output_path, written.n_bytes, error);
    if (error) return unavailable(output_path + ": " + error.message());
  }
  const std::unique_ptr<std::FILE, Close> out(std::fopen(output_path.c_str(), "ab"));
  if (out == nullptr) return unavailable(output_path + ": cannot be opened for writing");
  if (written.n_lines > 0) {
    fmt::print(stderr, "{} of {} states are answered already\n", written.n_lines, lines.size());
  }
  const std::string folder = std::filesystem::path(input_path).parent_path().string();
  const std::atomic<bool>& interrupted = catch_interrupts();
  Progress progress("asking", "states");
  for (size_t i = written.n_lines; i < lines.size(); ++i) {
    progress.update(static_cast<double>(i), static_cast<double>(lines.size()));
    if (interrupted) {
      progress.finish();
      fmt::print(stderr, "stopped after {} of {} states; the same command goes on\n", i,
                 lines.size());
      return kExitInterrupted;
    }
    auto line = answer_line(engine, questions, model_name, lines[i], folder, i);
    if (!line.ok()) {
      return line.status().with_context(fmt::format("{} line {}", input_path, i + 1));
    }
    if (std::fwrite(line->data(), 1, line->size(), out.get()) != line->size() ||
        std::fflush(out.get()) != 0) {
      return unavailable(output_path + ": writing failed; is the disk full?");
    }
  }
  progress.finish();
  return 0;
}

}  // namespace okibi::apps
