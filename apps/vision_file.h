// What the vision file beside a model says, read without loading either.
#pragma once

#include <string>

#include "model/vision/vision_hparams.h"
#include "okibi/status.h"

namespace okibi::apps {

Result<model::VisionHparams> read_vision_file(const std::string& model_path,
                                              const std::string& mmproj_path);

}  // namespace okibi::apps
