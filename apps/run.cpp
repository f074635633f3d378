// `okibi run`: one prompt, or a conversation read line by line, answered as it is generated. The
// reply goes to standard output; progress, timings and questions to the user to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/progress.h"
#include "apps/terminal.h"
#include "okibi/generate.h"

namespace okibi::apps {
namespace {

struct Flags {
  EngineFlags engine;
  std::string mode;
  std::string prompt;
  std::string file;
  std::string system;
  bool raw = false;
  bool parse_special = false;
  bool think = false;
  GenerateOptions generate;
};

// From here on reading takes a while and memory is worth a look: the table comes first.
constexpr size_t kLongPrompt = 16384;

void print_error_line(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string rate_text(double n, double seconds) {
  return n > 0 && seconds > 0 ? fmt::format(", {} tok/s", format_rate(n / seconds)) : "";
}

void print_timings(const GenerateResult& result, size_t n_prompt, size_t n_reused,
                   const Session& session) {
  const GenerateTimings& t = result.timings;
  if (result.stop_reason == StopReason::kCancelled && t.n_generated == 0) {
    print_error_line(fmt::format("stopped after {} of {} prompt tokens ({})", t.n_prompt, n_prompt,
                                 format_seconds(t.prefill_seconds)));
    return;
  }
  // The first token comes out of the prefill's logits; the others cost a step each.
  const double n_steps = static_cast<double>(t.n_generated) - 1;
  std::string line = fmt::format(
      "prompt {} tokens{}{} | generated {} tokens{} | {}", n_prompt,
      n_reused > 0 ? fmt::format(" ({} kept from before)", n_reused) : "",
      rate_text(static_cast<double>(t.n_prompt), t.prefill_seconds), t.n_generated,
      rate_text(n_steps, t.decode_seconds),
      result.stop_reason == StopReason::kCancelled ? "stopped"
                                                   : stop_reason_name(result.stop_reason));
  print_error_line(line + " | " + hash_text(session.logits_hash()));
}

// Generates from `ids`, whose first tokens the session may already hold, and prints.
Result<GenerateResult> answer(Session& session, const std::vector<TokenId>& ids,
                              const GenerateOptions& base) {
  const std::vector<TokenId>& held = session.tokens();
  const auto [end, unused] = std::mismatch(held.begin(), held.end(), ids.begin(), ids.end());
  // At least one token is computed again: its logits are where the reply begins.
  const size_t n_reused =
      std::min(static_cast<size_t>(end - held.begin()), ids.empty() ? 0 : ids.size() - 1);
  if (n_reused < held.size()) OKIBI_RETURN_IF_ERROR(session.truncate(n_reused));

  if (ids.size() - n_reused >= kLongPrompt) {
    print_error_line(session.engine().memory().table());
  }
  Progress progress("reading the prompt", "tokens");
  GenerateOptions options = base;
  options.on_prefill = [&](size_t done, size_t total) {
    progress.update(static_cast<double>(done), static_cast<double>(total));
    if (done == total) progress.finish();
  };
  options.on_text = [](std::string_view piece) {
    const bool written = std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
    return std::fflush(stdout) == 0 && written;
  };
  Result<GenerateResult> result = generate(session, std::span(ids).subspan(n_reused), options);
  progress.finish();
  if (!result.ok()) return result;
  if (result->text.empty() || result->text.back() != '\n') std::fputc('\n', stdout);
  std::fflush(stdout);
  print_timings(*result, ids.size(), n_reused, session);
  return result;
}

Result<std::vector<TokenId>> encode_chat(const Text& text, const std::vector<Message>& messages,
                                         bool think) {
  OKIBI_ASSIGN_OR_RETURN(const std::vector<PromptPart> parts, text.chat_parts(messages, think));
  return text.encode_parts(parts);
}

std::vector<Message> opening_messages(const Flags& flags) {
  if (flags.system.empty()) return {};
  return {{"system", flags.system}};
}

// One prompt; returns the exit code.
Result<int> run_once(const Flags& flags, Engine& engine, Session& session, std::string prompt) {
  std::vector<TokenId> ids;
  if (flags.raw) {
    OKIBI_ASSIGN_OR_RETURN(ids, engine.text().encode(prompt, flags.parse_special));
  } else {
    std::vector<Message> messages = opening_messages(flags);
    messages.push_back({"user", std::move(prompt)});
    OKIBI_ASSIGN_OR_RETURN(ids, encode_chat(engine.text(), messages, flags.think));
  }
  OKIBI_ASSIGN_OR_RETURN(const GenerateResult result, answer(session, ids, flags.generate));
  return result.stop_reason == StopReason::kCancelled ? kExitInterrupted : 0;
}

// Lines from standard input until it ends; Ctrl-C ends a reply, or the conversation at its prompt.
Result<int> run_chat(const Flags& flags, Engine& engine, Session& session,
                     std::atomic<bool>& interrupted) {
  std::vector<Message> messages = opening_messages(flags);
  // Refuses a model without a layout before the user has typed anything.
  OKIBI_RETURN_IF_ERROR(engine.text().chat_layout().status());
  const bool is_interactive = is_terminal(stdin);
  if (is_interactive) print_error_line("Type a message; Ctrl-C stops a reply, Ctrl-D ends.");
  for (;;) {
    if (is_interactive) std::fputs("> ", stderr);
    std::string line;
    if (!std::getline(std::cin, line) || interrupted) break;
    if (line.empty()) continue;
    messages.push_back({"user", line});
    OKIBI_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                           encode_chat(engine.text(), messages, flags.think));
    Result<GenerateResult> result = answer(session, ids, flags.generate);
    if (!result.ok()) {
      // A conversation that no longer fits is the user's to end or to change.
      if (result.status().code() != StatusCode::kResourceExhausted) return result.status();
      report(result.status());
      messages.pop_back();
      if (!is_interactive) return 1;
      continue;
    }
    interrupted = false;
    messages.push_back({"assistant", result->text});
  }
  if (is_interactive) std::fputc('\n', stderr);
  return 0;
}

Result<int> run(Flags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.file.empty()) {
    OKIBI_ASSIGN_OR_RETURN(prompt, read_text(flags.file));
  }
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, flags.engine.open());
  OKIBI_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->new_session());
  std::atomic<bool>& interrupted = catch_interrupts();
  flags.generate.cancel = &interrupted;
  Result<int> code = flags.mode == "chat" ? run_chat(flags, *engine, *session, interrupted)
                                          : run_once(flags, *engine, *session, std::move(prompt));
  if (!code.ok()) return code;
  OKIBI_RETURN_IF_ERROR(flags.engine.write_profile(*engine));
  return code;
}

}  // namespace

void add_run(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  flags->engine.options.n_sessions = 1;
  CLI::App* command = app.add_subcommand("run", "answer a prompt, or chat");
  flags->engine.add(command);
  CLI::Option_group* input = command->add_option_group("input", "exactly one of");
  input->add_option("mode", flags->mode, "chat: a conversation, one line of input per message")
      ->check(CLI::IsMember({"chat"}));
  input->add_option("-p,--prompt", flags->prompt, "one user message")->type_name("TEXT");
  input->add_option("-f,--file", flags->file, "the same from a file; - reads standard input")
      ->type_name("FILE");
  input->require_option(1);
  command->add_option("--system", flags->system, "system message")->type_name("TEXT");
  command->add_flag("--raw", flags->raw, "continue the text as it is, without a chat layout");
  command->add_flag("--special", flags->parse_special, "with --raw: recognise control tokens");
  command->add_flag("--think", flags->think, "let a thinking model think first");
  command->add_option("-n,--max-tokens", flags->generate.max_tokens, "longest reply, in tokens")
      ->capture_default_str();
  command->add_option("--stop", flags->generate.stop, "end the reply before this text; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  add_sampler_flags(command, &flags->generate.sampler);
  command->callback([flags, exit_code] {
    const Result<int> code = run(*flags);
    *exit_code = code.ok() ? *code : report(code.status());
  });
}

}  // namespace okibi::apps
