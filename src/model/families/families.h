// The load functions of all families; see registry.h.
#pragma once

#include <memory>

#include "model/model.h"
#include "model/weight_loader.h"

namespace okibi::model {

Result<std::unique_ptr<Model>> load_llama(WeightLoader& loader);
Result<std::unique_ptr<Model>> load_qwen35(WeightLoader& loader);
Result<std::unique_ptr<Model>> load_qwen4exp(WeightLoader& loader);
Result<std::unique_ptr<Model>> load_lfm2(WeightLoader& loader);

}  // namespace okibi::model
