// Which architectures there are. A new family is one file in families/ and one line in
// registry.cpp.
#pragma once

#include <memory>
#include <string>

#include "model/model.h"
#include "model/weight_loader.h"
#include "okibi/status.h"

namespace okibi::model {

// Reads `general.architecture` and lets that family check the file and load its weights. With a
// planning loader the result knows its facts and sizes but must not run.
Result<std::unique_ptr<Model>> load_model(WeightLoader& loader);

// "lfm2, llama"
std::string known_architectures();

}  // namespace okibi::model
