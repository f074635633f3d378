// Entry point: finds the command, parses its flags, returns its exit code.
#include "apps/commands.h"

int main(int argc, char** argv) {
  CLI::App app{
      "okibi: many typed questions about one state, and long contexts, on your own machine"};
  app.name("okibi");
  app.require_subcommand(1);
  app.set_version_flag("--version", "okibi 0.1.0");
  int exit_code = 0;
  okibi::apps::add_run(app, &exit_code);
  okibi::apps::add_logits(app, &exit_code);
  okibi::apps::add_perplexity(app, &exit_code);
  okibi::apps::add_ask(app, &exit_code);
  okibi::apps::add_serve(app, &exit_code);
  okibi::apps::add_calibrate(app, &exit_code);
  okibi::apps::add_inspect(app, &exit_code);
  okibi::apps::add_quantize(app, &exit_code);
  okibi::apps::add_synth(app, &exit_code);
  okibi::apps::add_tokenize(app, &exit_code);
  okibi::apps::add_bench(app, &exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
