// `okibi logits`: the float32 logits of every position as a .npy file. This is how anyone checks
// the engine against another implementation.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/npy.h"
#include "apps/pictures.h"
#include "apps/progress.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "okibi/session.h"

namespace okibi::apps {
namespace {

struct Flags {
  EngineFlags engine;
  std::string tokens_path;
  std::string prompt;
  std::vector<std::string> image_paths;
  bool parse_special = false;
  uint32_t chunk = 0;
  std::string out_path;
  std::string selected_path;
};

// Which earlier tokens every token attends to on every layer that selects blocks: uint8
// (layers, n, n).
class Selection {
 public:
  static Result<Selection> create(uint32_t n_layers, size_t n_tokens) {
    constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
    if (n_layers == 0) {
      return invalid_argument("--selected: no layer of this model selects what it attends to");
    }
    if (n_tokens > kMaxBytes / n_layers / n_tokens) {
      return invalid_argument(
          fmt::format("--selected: {} layers of {} x {} tokens are over the limit of {} bytes",
                      n_layers, n_tokens, n_tokens, kMaxBytes));
    }
    Selection s;
    s.n_tokens_ = n_tokens;
    s.n_layers_ = n_layers;
    s.seen_.resize(n_layers * n_tokens * n_tokens);
    return s;
  }
  void add(size_t token, uint32_t layer, std::span<const uint32_t> positions) {
    const size_t row = (layer * n_tokens_ + token) * n_tokens_;
    for (uint32_t p : positions) seen_[row + p] = 1;
  }
  Status write(const std::string& path) const {
    const uint64_t shape[] = {n_layers_, n_tokens_, n_tokens_};
    std::string file = npy_header("|u1", shape);
    file.append(reinterpret_cast<const char*>(seen_.data()), seen_.size());
    return write_file(path, file);
  }

 private:
  size_t n_layers_ = 0, n_tokens_ = 0;
  std::vector<uint8_t> seen_;
};

constexpr std::string_view kBlank = " \t\r\n";

// Ids as numbers separated by blanks; `n_vocab` bounds them.
Result<std::vector<TokenId>> read_ids(const std::string& path, uint32_t n_vocab) {
  OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  std::vector<TokenId> ids;
  for (size_t at = text.find_first_not_of(kBlank); at != std::string::npos;
       at = text.find_first_not_of(kBlank, at)) {
    const size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    TokenId id = -1;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || rest != text.data() + end || id < 0 ||
        static_cast<uint32_t>(id) >= n_vocab) {
      return bad_data(fmt::format("{}: entry {} is \"{}\"; expected a token id from 0 to {}", path,
                                  ids.size(), text.substr(at, std::min<size_t>(end - at, 40)),
                                  n_vocab - 1));
    }
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) return bad_data(path + ": holds no token ids; expected numbers");
  return ids;
}

Status run(const Flags& flags) {
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, flags.engine.open());
  const uint32_t n_vocab = engine->info().n_vocab;
  std::vector<TokenId> ids;
  if (!flags.tokens_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(ids, read_ids(flags.tokens_path, n_vocab));
  } else {
    OKIBI_ASSIGN_OR_RETURN(ids, engine->text().encode(flags.prompt, flags.parse_special));
    if (ids.empty()) return invalid_argument("the prompt has no tokens; expected some text");
  }
  Prompt prompt;
  if (flags.image_paths.empty()) {
    prompt.tokens = ids;
  } else {
    OKIBI_ASSIGN_OR_RETURN(const std::vector<Picture> pictures,
                           encode_pictures(*engine, flags.image_paths));
    for (size_t i = 0; i < pictures.size(); ++i) {
      std::fprintf(stderr, "%s\n", describe_picture(flags.image_paths[i], pictures[i]).c_str());
    }
    OKIBI_ASSIGN_OR_RETURN(prompt, engine->place_pictures(ids, pictures));
  }
  OKIBI_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->new_session());
  OKIBI_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(flags.out_path, ids.size(), n_vocab));

  const std::atomic<bool>& interrupted = catch_interrupts();
  Progress progress("computing", "tokens");
  AppendOptions append;
  append.max_chunk = flags.chunk;
  append.cancel = &interrupted;
  append.on_progress = [&](size_t done) {
    progress.update(static_cast<double>(done), static_cast<double>(ids.size()));
  };
  append.on_logits = [&](size_t, std::span<const float> row) { writer.write_row(row); };
  std::optional<Selection> selection;
  if (!flags.selected_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(selection,
                           Selection::create(engine->info().n_sparse_layers, ids.size()));
    append.on_selection = [&](size_t token, uint32_t layer, std::span<const uint32_t> positions) {
      selection->add(token, layer, positions);
    };
  }
  const double start = seconds_now();
  const Status status = session->append(prompt, append);
  const double seconds = seconds_now() - start;
  progress.finish();
  OKIBI_RETURN_IF_ERROR(status);
  OKIBI_RETURN_IF_ERROR(writer.finish());
  if (selection.has_value()) OKIBI_RETURN_IF_ERROR(selection->write(flags.selected_path));
  std::fprintf(stderr, "%s\n",
               fmt::format("{}: ({}, {}) float32 | {} in {}, {} tok/s | {}", flags.out_path,
                           ids.size(), n_vocab, engine->numeric_identity(), format_seconds(seconds),
                           format_rate(static_cast<double>(ids.size()) / seconds),
                           hash_text(session->logits_hash()))
                   .c_str());
  return flags.engine.write_profile(*engine);
}

}  // namespace

void add_logits(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  flags->engine.options.n_sessions = 1;
  CLI::App* command = app.add_subcommand("logits", "write the logits of every position to a file");
  flags->engine.add(command);
  CLI::Option_group* input = command->add_option_group("input", "exactly one of");
  input
      ->add_option("--tokens", flags->tokens_path,
                   "token ids, numbers separated by blanks; - reads standard input")
      ->type_name("FILE");
  input->add_option("-p,--prompt", flags->prompt, "text, encoded as it is")->type_name("TEXT");
  input->require_option(1);
  command
      ->add_option("--image", flags->image_paths,
                   "PNG, JPEG or WebP; its rows take the image tokens of the prompt, in order")
      ->type_name("FILE");
  command->add_flag("--special", flags->parse_special, "recognise control tokens in the text");
  command->add_option("--chunk", flags->chunk, "most tokens per step; changes no bit");
  command->add_option("--out", flags->out_path, "float32 (n_tokens, n_vocab), NumPy's .npy format")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--selected", flags->selected_path,
                   "uint8 (sparse layers, n_tokens, n_tokens): which tokens each attends to, .npy")
      ->type_name("FILE");
  command->callback([flags, exit_code] {
    const Status status = run(*flags);
    *exit_code = status.ok() ? 0 : report(status);
  });
}

}  // namespace okibi::apps
