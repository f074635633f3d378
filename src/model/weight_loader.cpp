#include "model/weight_loader.h"

#include <fmt/format.h>

#include "tensor/dequantize.h"

namespace okibi::model {

Result<const gguf::TensorInfo*> WeightLoader::find(const std::string& name, int64_t ne0,
                                                   int64_t rows) const {
  const gguf::TensorInfo* info = file_.find_tensor(name);
  if (info == nullptr) return bad_data(fmt::format("the tensor {} is missing", name));
  if (info->ne[0] != static_cast<uint64_t>(ne0) || info->n_rows() != static_cast<uint64_t>(rows)) {
    return bad_data(fmt::format("{}: expected rows of {} values and {} of them, the file has {}",
                                name, ne0, rows, gguf::shape_text(*info)));
  }
  if (!traits_of(info->type).is_weight) {
    return bad_data(fmt::format("{}: {} is not a weight type", name, name_of(info->type)));
  }
  return info;
}

void WeightLoader::count(const gguf::TensorInfo& info) {
  n_parameters_ += info.n_elements();
  source_bytes_done_ += info.n_bytes;
  if (on_progress) on_progress(source_bytes_done_);
}

Result<ops::Weight> WeightLoader::matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name + ".weight", n_in, n_out));
  float scale = 1.0f;
  if (has(name + ".scale")) {
    OKIBI_ASSIGN_OR_RETURN(std::vector<float> scales, floats(name + ".scale", 1));
    scale = scales[0];
  }
  return add(*info, n_in, n_out, scale);
}

Result<ops::Weight> WeightLoader::flat_matrix(const std::string& name, int64_t n_in,
                                              int64_t n_out) {
  const gguf::TensorInfo* info = file_.find_tensor(name + ".weight");
  if (info == nullptr) return bad_data(fmt::format("the tensor {}.weight is missing", name));
  const auto n = static_cast<uint64_t>(n_in) * static_cast<uint64_t>(n_out);
  const uint64_t last = info->ne[static_cast<size_t>(info->n_dims > 0 ? info->n_dims - 1 : 0)];
  if (info->n_elements() != n || last != static_cast<uint64_t>(n_out)) {
    return bad_data(
        fmt::format("{}.weight: expected {} values for each of {} outputs, the file has {}", name,
                    n_in, n_out, gguf::shape_text(*info)));
  }
  const DTypeTraits& traits = traits_of(info->type);
  if (!traits.is_weight || (traits.block_size > 1 && info->ne[0] != static_cast<uint64_t>(n_in))) {
    return unsupported(
        fmt::format("{}.weight: found {}, expected F32, F16 or BF16", name, name_of(info->type)));
  }
  return add(*info, n_in, n_out, 1.0f);
}

Result<ops::Weight> WeightLoader::add(const gguf::TensorInfo& info, int64_t n_in, int64_t n_out,
                                      float scale) {
  ops::WeightSource source = {.name = info.name,
                              .type = info.type,
                              .n_in = n_in,
                              .n_out = n_out,
                              .scale = scale,
                              .may_round = may_round};
  const uint64_t bytes = sizer_.packed_bytes(source);
  ops::Weight weight{.id = static_cast<int32_t>(weights_.size()), .n_in = n_in, .n_out = n_out};
  if (target_ != nullptr) {
    source.data = file_.data(info).data();
    auto added = target_->add_weight(source);
    if (!added.ok()) return added.status().with_context(info.name);
    weight = *added;
    file_.release(info);
  }
  packed_bytes_ += bytes;
  weights_.push_back(weight);
  weight_bytes_.push_back(bytes);
  count(info);
  return weight;
}

Result<std::vector<float>> WeightLoader::floats(const std::string& name, int64_t n) {
  const gguf::TensorInfo* info = file_.find_tensor(name);
  if (info == nullptr) return bad_data(fmt::format("the tensor {} is missing", name));
  if (info->n_elements() != static_cast<uint64_t>(n)) {
    return bad_data(
        fmt::format("{}: expected {} values, the file has {}", name, n, gguf::shape_text(*info)));
  }
  if (!traits_of(info->type).is_weight) {
    return bad_data(fmt::format("{}: {} is not a weight type", name, name_of(info->type)));
  }
  std::vector<float> values(static_cast<size_t>(n));
  const uint8_t* src = file_.data(*info).data();
  const uint64_t stride = row_bytes(info->type, info->ne[0]);
  for (uint64_t row = 0; row < info->n_rows(); ++row) {
    dequantize_row(info->type, src + row * stride, static_cast<int64_t>(info->ne[0]),
                   values.data() + row * info->ne[0]);
  }
  for (float v : values) {
    if (!(v - v == 0.0f))
      return bad_data(fmt::format("{}: holds a value that is not finite", name));
  }
  return values;
}

Result<ops::Vector> WeightLoader::vector(const std::string& name, int64_t n) {
  OKIBI_ASSIGN_OR_RETURN(std::vector<float> values, floats(name, n));
  packed_bytes_ += static_cast<uint64_t>(n) * sizeof(float);
  count(*file_.find_tensor(name));
  if (target_ == nullptr) return ops::Vector{.id = 0, .n = n};
  return target_->add_vector(values);
}

uint64_t WeightLoader::bytes_of(ops::Weight weight) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].id == weight.id) return weight_bytes_[i];
  }
  return 0;
}

}  // namespace okibi::model
