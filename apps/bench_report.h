// Results of a benchmark as people and programs read them.
#pragma once

#include <string>

#include "apps/bench_measure.h"

namespace okibi::apps {

// What stands in every row besides the numbers.
struct BenchContext {
  std::string machine;  // processor name
  std::string model_file;
  std::string model_sha256;  // empty when it was not computed
};
std::string machine_name();
// SHA-256 of a file's bytes, in hexadecimal digits.
Result<std::string> file_sha256(const std::string& path);

std::string bench_table(const BenchPlan& plan, const BenchResult& result);
std::string bench_csv(const BenchContext& context, const BenchPlan& plan,
                      const BenchResult& result);
std::string bench_json(const BenchContext& context, const BenchPlan& plan,
                       const BenchResult& result);
// Tokens per second against depth (a logarithmic axis), one line per set, prefill above decode.
// Dashed: what the shallowest speed falls to if only what depth adds takes time, at the roof.
std::string bench_svg(const BenchContext& context, const BenchPlan& plan,
                      const BenchResult& result);

}  // namespace okibi::apps
