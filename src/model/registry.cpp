#include "model/registry.h"

#include <fmt/format.h>

#include "model/families/families.h"

namespace okibi::model {
namespace {

struct Family {
  std::string_view architecture;
  Result<std::unique_ptr<Model>> (*load)(WeightLoader& loader);
};

constexpr Family kFamilies[] = {
    {"lfm2", load_lfm2},
    {"llama", load_llama},
    {"qwen35", load_qwen35},
    {"qwen4exp", load_qwen4exp},
};

}  // namespace

std::string known_architectures() {
  std::string names;
  for (const Family& f : kFamilies) {
    if (!names.empty()) names += ", ";
    names += f.architecture;
  }
  return names;
}

Result<std::unique_ptr<Model>> load_model(WeightLoader& loader) {
  const gguf::File& file = loader.file();
  OKIBI_ASSIGN_OR_RETURN(std::string_view type, file.get_string_or("general.type", "model"));
  if (type != "model") {
    return unsupported(fmt::format("general.type: found \"{}\", expected \"model\"", type));
  }
  OKIBI_ASSIGN_OR_RETURN(std::string_view arch, file.get_string("general.architecture"));
  for (const Family& f : kFamilies) {
    if (f.architecture == arch) return f.load(loader);
  }
  return unsupported(fmt::format("general.architecture: found \"{}\", this build knows {}", arch,
                                 known_architectures()));
}

}  // namespace okibi::model
