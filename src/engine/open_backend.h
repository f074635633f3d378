// The one place that knows which backends there are.
#pragma once

#include <memory>
#include <string>

#include "okibi/status.h"
#include "ops/ops.h"

namespace okibi::engine {

struct BackendOptions {
  std::string cpu_level;  // empty: the host's best
  int n_threads = 0;      // 0: one per core
  bool f32_activations = false;
};

Result<std::unique_ptr<ops::Backend>> open_backend(const BackendOptions& options);
// What n_threads 0 means on this host.
int default_thread_count();

}  // namespace okibi::engine
