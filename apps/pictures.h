// The picture files of a command, encoded.
#pragma once

#include <string>
#include <vector>

#include "okibi/engine.h"
#include "okibi/picture.h"
#include "okibi/status.h"

namespace okibi::apps {

Result<std::vector<Picture>> encode_pictures(Engine& engine, const std::vector<std::string>& paths);
// What a picture became and what it took, in a line.
std::string describe_picture(const std::string& path, const Picture& picture);

}  // namespace okibi::apps
