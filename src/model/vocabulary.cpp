#include "model/vocabulary.h"

#include <fmt/format.h>

namespace okibi::model {
namespace {

Status read_id(const gguf::File& file, const char* name, int64_t* id) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (!file.has(key)) return ok_status();
  OKIBI_ASSIGN_OR_RETURN(uint64_t value, file.get_u64(key));
  *id = value > INT32_MAX ? INT32_MAX : static_cast<int64_t>(value);
  return ok_status();
}

Status read_flag(const gguf::File& file, const char* name, int* flag) {
  const std::string key = fmt::format("tokenizer.ggml.{}", name);
  if (!file.has(key)) return ok_status();
  OKIBI_ASSIGN_OR_RETURN(bool value, file.get_bool(key));
  *flag = value ? 1 : 0;
  return ok_status();
}

}  // namespace

Result<tokenizer::VocabularyData> read_vocabulary(const gguf::File& file) {
  tokenizer::VocabularyData data;
  OKIBI_ASSIGN_OR_RETURN(std::string_view model, file.get_string("tokenizer.ggml.model"));
  data.model = std::string(model);
  OKIBI_ASSIGN_OR_RETURN(std::string_view pre, file.get_string_or("tokenizer.ggml.pre", ""));
  data.pre = std::string(pre);
  OKIBI_ASSIGN_OR_RETURN(std::vector<std::string_view> tokens,
                         file.get_strings("tokenizer.ggml.tokens"));
  data.tokens.assign(tokens.begin(), tokens.end());
  if (file.has("tokenizer.ggml.merges")) {
    OKIBI_ASSIGN_OR_RETURN(std::vector<std::string_view> merges,
                           file.get_strings("tokenizer.ggml.merges"));
    data.merges.assign(merges.begin(), merges.end());
  }
  if (file.has("tokenizer.ggml.scores")) {
    const gguf::Value* scores = file.find("tokenizer.ggml.scores");
    if (scores->element_type == gguf::ValueType::kI32) {
      OKIBI_ASSIGN_OR_RETURN(std::vector<int64_t> values, file.get_ints("tokenizer.ggml.scores"));
      data.scores.assign(values.begin(), values.end());
    } else {
      OKIBI_ASSIGN_OR_RETURN(data.scores, file.get_floats("tokenizer.ggml.scores"));
    }
  }
  if (file.has("tokenizer.ggml.token_type")) {
    OKIBI_ASSIGN_OR_RETURN(std::vector<int64_t> types, file.get_ints("tokenizer.ggml.token_type"));
    data.types.reserve(types.size());
    for (int64_t t : types) data.types.push_back(t >= 0 && t <= 6 ? static_cast<int32_t>(t) : 0);
  }
  OKIBI_RETURN_IF_ERROR(read_id(file, "bos", &data.bos));
  OKIBI_RETURN_IF_ERROR(read_id(file, "eos", &data.eos));
  OKIBI_RETURN_IF_ERROR(read_id(file, "eot", &data.eot));
  OKIBI_RETURN_IF_ERROR(read_id(file, "eom", &data.eom));
  OKIBI_RETURN_IF_ERROR(read_id(file, "unknown", &data.unk));
  OKIBI_RETURN_IF_ERROR(read_id(file, "padding", &data.pad));
  OKIBI_RETURN_IF_ERROR(read_id(file, "fim_pad", &data.fim_pad));
  OKIBI_RETURN_IF_ERROR(read_id(file, "fim_rep", &data.fim_rep));
  OKIBI_RETURN_IF_ERROR(read_id(file, "fim_sep", &data.fim_sep));
  OKIBI_RETURN_IF_ERROR(read_flag(file, "add_bos_token", &data.add_bos));
  OKIBI_RETURN_IF_ERROR(read_flag(file, "add_eos_token", &data.add_eos));
  OKIBI_RETURN_IF_ERROR(read_flag(file, "add_space_prefix", &data.add_space_prefix));
  OKIBI_ASSIGN_OR_RETURN(std::string_view chat_template,
                         file.get_string_or("tokenizer.chat_template", ""));
  data.chat_template = std::string(chat_template);
  return data;
}

}  // namespace okibi::model
