// The CPU implementation of ops::Backend: it opens, the rest is the contract in ops/ops.h.
#pragma once

#include <memory>
#include <optional>

#include "okibi/activation_type.h"
#include "okibi/status.h"
#include "ops/ops.h"
#include "platform/cpu_features.h"

namespace okibi::cpu {

struct CpuBackendOptions {
  std::optional<CpuLevel> level;  // the host's best when empty; an error when the host lacks it
  int n_threads = 1;              // counts the calling thread
  ActivationType activations = ActivationType::kInt8;
};

Result<std::unique_ptr<ops::Backend>> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace okibi::cpu
