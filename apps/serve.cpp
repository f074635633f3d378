// `okibi serve`: the HTTP server. Says on standard output where it listens, then a line per request
// on standard error, and drains on SIGTERM and SIGINT; the second signal ends it at once.
#include <fmt/format.h>
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/printable.h"
#include "apps/terminal.h"
#include "server/engine_decider.h"
#include "server/server.h"

namespace okibi::apps {
namespace {

struct Flags {
  EngineFlags engine;
  server::ServerOptions server;
  std::string keys_path, name, calibration_path;
  double drain_seconds = 30;
  uint64_t body_memory_mib = 256;
  bool quiet = false;
};

int64_t file_time(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

void log_request(const server::RequestLog& log) {
  fmt::print(stderr, "{} {} {} {} {:.1f} ms\n", log.request_id, printable(log.method, 20),
             printable(log.path, 80), log.status, log.seconds * 1e3);
}

// The signals that end the server, held back in every thread that is started after this.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

Result<int> serve(Flags flags) {
  if (!flags.keys_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.keys_path));
    auto keys = server::ApiKeys::parse(text);
    if (!keys.ok()) return keys.status().with_context(flags.keys_path);
    flags.server.keys = std::move(keys).value();
  }
  const std::string& path = flags.engine.options.model_path;
  if (flags.name.empty()) flags.name = std::filesystem::path(path).stem().string();
  const sigset_t signals = block_signals();
  flags.server.max_body_memory = flags.body_memory_mib << 20;
  flags.engine.options.n_sessions = static_cast<uint32_t>(flags.server.n_workers);
  OKIBI_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, flags.engine.open());
  server::EngineDeciderOptions options{.model_name = flags.name,
                                       .model_file_time = file_time(path)};
  if (!flags.calibration_path.empty()) {
    OKIBI_ASSIGN_OR_RETURN(const std::string text, read_text(flags.calibration_path));
    auto calibration = parse_calibration(text);
    if (!calibration.ok()) return calibration.status().with_context(flags.calibration_path);
    options.calibration = *calibration;
  }
  const std::unique_ptr<server::Decider> decider = server::make_engine_decider(engine, options);
  if (!flags.quiet) flags.server.on_request = log_request;
  OKIBI_ASSIGN_OR_RETURN(const std::unique_ptr<server::Server> server,
                         server::Server::start(flags.server, *decider));
  fmt::print("{} listens on http://{}\n", flags.name, server->address());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  fmt::print(stderr, "draining\n");
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  server->drain(flags.drain_seconds);
  OKIBI_RETURN_IF_ERROR(flags.engine.write_profile(*engine));
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("serve", "answer typed questions over HTTP (System One, Decisions)");
  flags->engine.add(command, ActivationType::kBf16);
  command->add_option("--host", flags->server.host, "address to listen on")->capture_default_str();
  command->add_option("--port", flags->server.port, "0: any free port")->capture_default_str();
  command
      ->add_option("--api-keys", flags->keys_path,
                   "file of keys, one a line; clients must show one. Needed unless the host is a "
                   "loopback address")
      ->type_name("FILE");
  command->add_flag("--shared-caches", flags->server.shared_caches,
                    "let clients with different keys share what is kept");
  command->add_option("--workers", flags->server.n_workers, "requests that run at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--queue", flags->server.max_waiting, "requests that may wait; more get 429")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command
      ->add_option("--body-memory", flags->body_memory_mib,
                   "MiB that the bodies of all requests may take together; more get 429")
      ->check(CLI::Range(32, 1 << 20))
      ->capture_default_str();
  command->add_option("--name", flags->name, "the model's name in answers; default: the file's");
  command->add_option("--calibration", flags->calibration_path, "temperatures made by calibrate")
      ->type_name("FILE");
  command
      ->add_option("--drain", flags->drain_seconds,
                   "seconds that running requests have after SIGTERM")
      ->capture_default_str();
  command->add_flag("--quiet", flags->quiet, "no line per request");
  command->callback([flags, exit_code] {
    const Result<int> code = serve(*flags);
    *exit_code = code.ok() ? *code : report(code.status());
  });
}

}  // namespace okibi::apps
