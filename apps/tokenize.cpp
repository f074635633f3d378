// `okibi tokenize`: the ids of a text, one line per text, and how fast they came. For comparing the
// tokenizer with others; needs only the vocabulary of a file, not its weights.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "gguf/reader.h"
#include "model/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace okibi::apps {
namespace {

struct Flags {
  std::string model_path;
  std::string prompt;
  std::string text_path;
  std::string lines_path;
  bool parse_special = false;
  bool bare = false;
  bool no_nfc = false;
};

Result<std::vector<std::string>> read_texts(const Flags& flags) {
  std::vector<std::string> texts;
  if (!flags.lines_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.lines_path));
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_array()) return bad_data(flags.lines_path + ": no JSON array of strings");
    for (const auto& entry : json) {
      if (!entry.is_string()) return bad_data(flags.lines_path + ": holds more than strings");
      texts.push_back(entry.get<std::string>());
    }
  } else if (!flags.text_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.text_path));
    texts.push_back(tokenizer::replace_invalid_utf8(text));
  } else {
    texts.push_back(flags.prompt);
  }
  return texts;
}

Status tokenize(const Flags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_texts(flags));
  const double start = seconds_now();
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(flags.model_path));
  OKIBI_ASSIGN_OR_RETURN(auto data, model::read_vocabulary(file));
  OKIBI_ASSIGN_OR_RETURN(const auto tokenizer,
                         tokenizer::Tokenizer::create(std::move(data), flags.no_nfc ? 0 : -1));
  const double load_seconds = seconds_now() - start;
  for (const std::string& warning : tokenizer->warnings()) {
    std::fprintf(stderr, "okibi: %s: %s\n", flags.model_path.c_str(), warning.c_str());
  }
  const tokenizer::EncodeOptions options = {.add_special = !flags.bare,
                                            .parse_special = flags.parse_special};
  double seconds = 0;
  size_t n_bytes = 0, n_ids = 0;
  for (const std::string& text : texts) {
    const double begin = seconds_now();
    OKIBI_ASSIGN_OR_RETURN(const std::vector<tokenizer::TokenId> ids,
                           tokenizer->encode(text, options));
    seconds += seconds_now() - begin;
    n_bytes += text.size();
    n_ids += ids.size();
    const std::string line = fmt::format("{}\n", fmt::join(ids, " "));
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
  std::fprintf(stderr, "%s\n",
               fmt::format("{} bytes, {} tokens in {:.1f} ms ({:.1f} MB/s); vocabulary of {} "
                           "loaded in {:.0f} ms",
                           n_bytes, n_ids, 1e3 * seconds,
                           static_cast<double>(n_bytes) / 1e6 / std::max(seconds, 1e-9),
                           tokenizer->n_tokens(), 1e3 * load_seconds)
                   .c_str());
  return ok_status();
}

}  // namespace

void add_tokenize(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("tokenize", "print the token ids of a text");
  command->add_option("-m,--model", flags->model_path, "GGUF file; its vocabulary is used")
      ->required()
      ->type_name("FILE");
  CLI::Option_group* input = command->add_option_group("input", "exactly one of");
  input->add_option("-p,--prompt", flags->prompt, "the text")->type_name("TEXT");
  input
      ->add_option("-f,--file", flags->text_path,
                   "a file holding the text; bytes that are not UTF-8 become U+FFFD")
      ->type_name("FILE");
  input->add_option("--lines", flags->lines_path, "a JSON array of texts, one line of ids each")
      ->type_name("FILE");
  input->require_option(1);
  command->add_flag("--special", flags->parse_special, "recognise control tokens in the text");
  command->add_flag("--bare", flags->bare, "add neither BOS nor EOS");
  command->add_flag("--no-nfc", flags->no_nfc, "leave Unicode as it is");
  command->callback([flags, exit_code] {
    const Status status = tokenize(*flags);
    *exit_code = status.ok() ? 0 : report(status);
  });
}

}  // namespace okibi::apps
