// See quantize_plan.h.
#include "apps/quantize_plan.h"

#include <fmt/format.h>

#include <map>

namespace okibi::apps {
namespace {

bool contains(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Numbers of the general.file_type key; K types without a mixture are the "small" variants.
uint32_t label_of(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kIQ4_NL:
      return 25;
    case DType::kBF16:
      return 32;
    default:
      return 0;  // F32
  }
}

TensorPlan plan_tensor(const gguf::TensorInfo& info, DType wanted, bool is_pinned) {
  if (!traits_of(info.type).is_weight) return {&info, info.type, "not a weight type, copied"};
  if (!is_quantizable(info)) return {&info, DType::kF32, "kept in F32"};
  if (is_pinned) {
    return {&info, DType::kF32, fmt::format("values beyond the range of {}", name_of(wanted))};
  }
  const DType target = fitting_type(wanted, info.ne[0]);
  if (target == wanted) return {&info, target, ""};
  return {&info, target, fmt::format("rows of {} do not fit {}", info.ne[0], name_of(wanted))};
}

}  // namespace

bool is_quantizable(const gguf::TensorInfo& info) {
  const std::string_view name = info.name;
  constexpr std::string_view kSuffix = ".weight";
  const bool is_matrix = info.ne[1] > 1 || info.ne[2] > 1 || info.ne[3] > 1;
  if (!is_matrix || name.size() < kSuffix.size() ||
      name.substr(name.size() - kSuffix.size()) != kSuffix) {
    return false;
  }
  for (const std::string_view part :
       {"norm", "ffn_gate_inp", "conv1d", "shortconv.conv.", "position_embd"}) {
    if (contains(name, part)) return false;
  }
  return true;
}

DType fitting_type(DType wanted, uint64_t n) {
  DType type = wanted;
  if (n % traits_of(type).block_size != 0 && traits_of(type).block_size == 256) {
    if (type == DType::kQ4_K) type = DType::kQ5_0;
    if (type == DType::kQ5_K) type = DType::kQ5_1;
    if (type == DType::kQ6_K) type = DType::kQ8_0;
  }
  return n % traits_of(type).block_size == 0 ? type : DType::kF16;
}

std::vector<TensorPlan> plan_quantization(const gguf::File& file, DType wanted,
                                          const std::set<std::string, std::less<>>& pinned) {
  std::vector<TensorPlan> plan;
  for (const gguf::TensorInfo& info : file.tensors()) {
    plan.push_back(plan_tensor(info, wanted, pinned.count(info.name) > 0));
  }
  return plan;
}

uint32_t file_type_of(const std::vector<TensorPlan>& plan, DType wanted) {
  std::map<DType, uint64_t> bytes;
  for (const TensorPlan& tensor : plan) {
    if (tensor.target == wanted) return label_of(wanted);
    bytes[tensor.target] += row_bytes(tensor.target, tensor.source->n_elements());
  }
  DType most = DType::kF32;
  for (const auto& [type, n] : bytes) {
    if (n > bytes[most]) most = type;
  }
  return label_of(most);
}

const std::vector<DType>& quantize_targets() {
  static const std::vector<DType> kTargets = {
      DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
      DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL};
  return kTargets;
}

}  // namespace okibi::apps
