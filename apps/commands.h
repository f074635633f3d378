// The commands of the `okibi` program. Each is one file in this folder: it declares its flags on
// the given app, turns them into options structs, calls the library, and prints. Only this folder
// prints or ends the process.
#pragma once

#include <CLI/CLI.hpp>

#include "okibi/status.h"

namespace okibi::apps {

// Adds the command to `app`. The command's callback sets `*exit_code`.
void add_ask(CLI::App& app, int* exit_code);
void add_bench(CLI::App& app, int* exit_code);
void add_calibrate(CLI::App& app, int* exit_code);
void add_inspect(CLI::App& app, int* exit_code);
void add_logits(CLI::App& app, int* exit_code);
void add_perplexity(CLI::App& app, int* exit_code);
void add_run(CLI::App& app, int* exit_code);
void add_quantize(CLI::App& app, int* exit_code);
void add_serve(CLI::App& app, int* exit_code);
void add_synth(CLI::App& app, int* exit_code);
void add_tokenize(CLI::App& app, int* exit_code);

// Prints "okibi: <message>" to standard error and returns the exit code for it (1).
int report(const Status& status);

}  // namespace okibi::apps
