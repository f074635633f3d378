// What commands that rewrite a GGUF file share.
#pragma once

#include <string>

#include "gguf/reader.h"
#include "okibi/status.h"

namespace okibi::apps {

// Every file that IN consists of; none of them may be OUT, under whatever name.
Status check_out_is_not_in(const std::string& in, const std::string& out, const gguf::File& file);

}  // namespace okibi::apps
