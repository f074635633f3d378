#include "model/weight_loader.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

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

void WeightLoader::count(uint64_t n_elements, uint64_t n_bytes) {
  n_parameters_ += n_elements;
  source_bytes_done_ += n_bytes;
  if (on_progress) on_progress(source_bytes_done_);
}

Result<float> WeightLoader::scale_of(const std::string& name) const {
  if (!has(name + ".scale")) return 1.0f;
  OKIBI_ASSIGN_OR_RETURN(std::vector<float> scales, floats(name + ".scale", 1));
  return scales[0];
}

Result<ops::Weight> WeightLoader::matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name + ".weight", n_in, n_out));
  OKIBI_ASSIGN_OR_RETURN(const float scale, scale_of(name));
  return add(*info, {.n_in = n_in, .n_out = n_out, .scale = scale}, 1);
}

Result<ops::Weight> WeightLoader::table(const std::string& name, int64_t n_in, int64_t n_out) {
  const bool others_may = std::exchange(may_round, false);
  Result<ops::Weight> weight = matrix(name, n_in, n_out);
  may_round = others_may;
  return weight;
}

Result<ops::Weight> WeightLoader::experts(const std::string& name, int64_t n_in, int64_t n_out,
                                          int64_t n_matrices, int64_t n_used) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* info,
                         find(name + ".weight", n_in, n_out * n_matrices));
  OKIBI_ASSIGN_OR_RETURN(const float scale, scale_of(name));
  return add(*info, {.n_in = n_in, .n_out = n_out, .scale = scale, .n_matrices = n_matrices},
             n_used);
}

Result<ops::Weight> WeightLoader::interleaved(const std::string& name, int64_t n_in,
                                              const Interleaved& rows) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name + ".weight", n_in, rows.n_rows));
  OKIBI_ASSIGN_OR_RETURN(const float scale, scale_of(name));
  const int64_t n_periods = rows.n_rows / rows.period;
  const bool are_experts = rows.n_used > 0;
  const ops::WeightSource source = {.n_in = n_in,
                                    .n_out = are_experts ? rows.n_out : rows.n_out * n_periods,
                                    .scale = scale,
                                    .n_matrices = are_experts ? n_periods : 1};
  std::vector<uint8_t> picked;
  if (target_ != nullptr) {
    const uint64_t row = row_bytes(info->type, info->ne[0]);
    const uint8_t* from = file_.data(*info).data() + static_cast<uint64_t>(rows.first) * row;
    const uint64_t n_bytes = static_cast<uint64_t>(rows.n_out) * row;
    picked.resize(n_bytes * static_cast<uint64_t>(n_periods));
    for (int64_t i = 0; i < n_periods; ++i) {
      std::memcpy(picked.data() + static_cast<uint64_t>(i) * n_bytes,
                  from + static_cast<uint64_t>(i * rows.period) * row, n_bytes);
    }
  }
  return add(*info, source, are_experts ? rows.n_used : 1, picked);
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
  return add(*info, {.n_in = n_in, .n_out = n_out}, 1);
}

Result<ops::Weight> WeightLoader::add(const gguf::TensorInfo& info, ops::WeightSource source,
                                      int64_t n_used, std::span<const uint8_t> data) {
  source.name = info.name;
  source.type = info.type;
  source.may_round = may_round;
  const uint64_t bytes = sizer_.packed_bytes(source);
  ops::Weight weight{.id = static_cast<int32_t>(weights_.size()),
                     .n_in = source.n_in,
                     .n_out = source.n_out,
                     .n_matrices = source.n_matrices};
  if (target_ != nullptr) {
    source.data = data.empty() ? file_.data(info).data() : data.data();
    auto added = target_->add_weight(source);
    if (!added.ok()) return added.status().with_context(info.name);
    weight = *added;
    file_.release(info);
  }
  packed_bytes_ += bytes;
  weights_.push_back(weight);
  weight_bytes_.push_back(bytes);
  n_used_.push_back(n_used);
  const auto n_rows = static_cast<uint64_t>(source.n_out * source.n_matrices);
  const auto n_in = static_cast<uint64_t>(source.n_in);
  count(n_rows * n_in, n_rows * row_bytes(info.type, n_in));
  return weight;
}

Result<std::vector<float>> WeightLoader::floats(const std::string& name, int64_t n) const {
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
  const gguf::TensorInfo* info = file_.find_tensor(name);
  count(info->n_elements(), info->n_bytes);
  if (target_ == nullptr) return ops::Vector{.id = 0, .n = n};
  return target_->add_vector(values);
}

uint64_t WeightLoader::bytes_of(ops::Weight weight) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].id == weight.id) return weight_bytes_[i];
  }
  return 0;
}

Result<ops::NgramTable> WeightLoader::ngram_table(ops::NgramTableSource source) {
  uint64_t n_rows = 0;
  for (const ops::NgramTableSource::Head& head : source.heads) n_rows += head.n_rows;
  count(n_rows * static_cast<uint64_t>(source.row_width), 0);
  const auto cols = static_cast<int64_t>(source.heads.size()) * source.row_width;
  if (target_ == nullptr) return ops::NgramTable{.id = 0, .cols = cols};
  source.prefetch = [file = &file_](const uint8_t* p, uint64_t n) { file->prefetch(p, n); };
  return target_->add_ngram_table(source);
}

WeightLoader::PerToken WeightLoader::per_token(ops::Weight weight) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].id != weight.id) continue;
    const auto n_used = static_cast<uint64_t>(n_used_[i]);
    return {weight_bytes_[i] / static_cast<uint64_t>(weight.n_matrices) * n_used,
            static_cast<uint64_t>(weight.n_in) * static_cast<uint64_t>(weight.n_out) * n_used};
  }
  return {};
}

}  // namespace okibi::model
