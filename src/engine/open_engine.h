// Opening an engine whose backend is wrapped: for tests that watch or spoil the operations.
#pragma once

#include <functional>
#include <memory>

#include "okibi/engine.h"
#include "okibi/status.h"
#include "ops/ops.h"

namespace okibi::engine {

using BackendWrapper =
    std::function<std::unique_ptr<ops::Backend>(std::unique_ptr<ops::Backend> inner)>;

// Engine::open, with `wrap` (may be empty) applied to the backend before anything is loaded.
Result<std::shared_ptr<Engine>> open_engine(EngineOptions options, const BackendWrapper& wrap);

}  // namespace okibi::engine
