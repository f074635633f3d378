// What `okibi inspect` shows of a picture: the file, what became of it, and the views a model sees.
#pragma once

#include <string>

#include "okibi/status.h"

namespace okibi::apps {

struct InspectPictureFlags {
  std::string path;
  std::string model_path, mmproj_path;  // whose view parameters; empty: those of LFM2.5-VL
  std::string rgb_path;                 // where the views' pixels go; empty: nowhere
  bool json = false;
};

// Whether the file begins like a picture that is read. False also for files that cannot be opened.
bool is_picture_file(const std::string& path);
Status inspect_picture(const InspectPictureFlags& flags);

}  // namespace okibi::apps
