// How much memory an engine needs, decided before anything large is allocated.
#pragma once

#include "engine/core.h"
#include "model/model.h"
#include "okibi/engine.h"
#include "okibi/status.h"

namespace okibi::engine {

struct SizedPlan {
  MemoryPlan plan;
  Core::Sizes sizes;
};

// Chooses the sizes for `options` and counts their bytes, those of `others` (the vision side) with
// them. Fails only on options that make no sense;
// whether it fits is for the caller to ask (MemoryPlan::fits).
Result<SizedPlan> plan_memory(const EngineOptions& options, const model::Model& model,
                              uint64_t packed_weight_bytes,
                              const std::vector<MemoryPlan::Row>& others = {});

}  // namespace okibi::engine
