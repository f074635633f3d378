// The one place that knows which backends there are.
#pragma once

#include <memory>
#include <string>

#include "okibi/activation_type.h"
#include "okibi/status.h"
#include "ops/ops.h"
#include "ops/roofs.h"

namespace okibi::engine {

struct BackendOptions {
  std::string cpu_level;  // empty: the host's best
  int n_threads = 0;      // 0: one per core
  ActivationType activations = ActivationType::kInt8;
};

Result<std::unique_ptr<ops::Backend>> open_backend(const BackendOptions& options);
// What this host can do at most with the same level and threads, measured now (about a second):
// the roofs that benchmarks give shares of. `buffer_bytes`: size of the buffer that is read.
Result<ops::Roofs> measure_roofs(const BackendOptions& options, uint64_t buffer_bytes);
// What n_threads 0 means on this host.
int default_thread_count();

}  // namespace okibi::engine
