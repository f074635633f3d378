#include "apps/vision_file.h"

#include "gguf/reader.h"
#include "model/hparams.h"

namespace okibi::apps {

Result<model::VisionHparams> read_vision_file(const std::string& model_path,
                                              const std::string& mmproj_path) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::File text_file, gguf::File::open(model_path));
  const Result<model::Hparams> text = model::read_hparams(text_file);
  if (!text.ok()) return text.status().with_context(model_path);
  OKIBI_ASSIGN_OR_RETURN(const gguf::File vision_file, gguf::File::open(mmproj_path));
  Result<model::VisionHparams> vision = model::read_vision_hparams(
      vision_file, {.d_model = text->d_model, .n_layers = text->n_layers});
  if (!vision.ok()) return vision.status().with_context(mmproj_path);
  return vision;
}

}  // namespace okibi::apps
