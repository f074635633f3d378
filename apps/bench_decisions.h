// `okibi bench decisions`: what reuse saves when questions are asked about a picture, and that it
// changes no bit.
#pragma once

#include <CLI/CLI.hpp>

namespace okibi::apps {

// Adds `decisions` to the command `bench`.
void add_bench_decisions(CLI::App* bench, int* exit_code);

}  // namespace okibi::apps
