// See out_file.h.
#include "apps/out_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "gguf/split.h"

namespace okibi::apps {

Status check_out_is_not_in(const std::string& in, const std::string& out, const gguf::File& file) {
  std::vector<std::string> inputs = {in};
  if (file.n_shards() > 1) {
    const auto name = gguf::parse_shard_name(in);
    for (uint32_t i = 1; name && i <= name->count; ++i) inputs.push_back(name->path_of(i));
  }
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::equivalent(input, out, error) && !error) {
      return invalid_argument(
          fmt::format("{} is the input file; choose another name for the result", out));
    }
  }
  return ok_status();
}

}  // namespace okibi::apps
