#include "tensor/dtype.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace okibi {
namespace {

constexpr std::array kTable = {
    DTypeTraits{DType::kF32, "F32", 1, 4, true},
    DTypeTraits{DType::kF16, "F16", 1, 2, true},
    DTypeTraits{DType::kQ4_0, "Q4_0", 32, 18, true},
    DTypeTraits{DType::kQ4_1, "Q4_1", 32, 20, true},
    DTypeTraits{DType::kQ5_0, "Q5_0", 32, 22, true},
    DTypeTraits{DType::kQ5_1, "Q5_1", 32, 24, true},
    DTypeTraits{DType::kQ8_0, "Q8_0", 32, 34, true},
    DTypeTraits{DType::kQ8_1, "Q8_1", 32, 36, false},
    DTypeTraits{DType::kQ2_K, "Q2_K", 256, 84, true},
    DTypeTraits{DType::kQ3_K, "Q3_K", 256, 110, true},
    DTypeTraits{DType::kQ4_K, "Q4_K", 256, 144, true},
    DTypeTraits{DType::kQ5_K, "Q5_K", 256, 176, true},
    DTypeTraits{DType::kQ6_K, "Q6_K", 256, 210, true},
    DTypeTraits{DType::kQ8_K, "Q8_K", 256, 292, false},
    DTypeTraits{DType::kIQ2_XXS, "IQ2_XXS", 256, 66, true},
    DTypeTraits{DType::kIQ2_XS, "IQ2_XS", 256, 74, true},
    DTypeTraits{DType::kIQ3_XXS, "IQ3_XXS", 256, 98, true},
    DTypeTraits{DType::kIQ1_S, "IQ1_S", 256, 50, true},
    DTypeTraits{DType::kIQ4_NL, "IQ4_NL", 32, 18, true},
    DTypeTraits{DType::kIQ3_S, "IQ3_S", 256, 110, true},
    DTypeTraits{DType::kIQ2_S, "IQ2_S", 256, 82, true},
    DTypeTraits{DType::kIQ4_XS, "IQ4_XS", 256, 136, true},
    DTypeTraits{DType::kI8, "I8", 1, 1, false},
    DTypeTraits{DType::kI16, "I16", 1, 2, false},
    DTypeTraits{DType::kI32, "I32", 1, 4, false},
    DTypeTraits{DType::kI64, "I64", 1, 8, false},
    DTypeTraits{DType::kF64, "F64", 1, 8, false},
    DTypeTraits{DType::kIQ1_M, "IQ1_M", 256, 56, true},
    DTypeTraits{DType::kBF16, "BF16", 1, 2, true},
    DTypeTraits{DType::kTQ1_0, "TQ1_0", 256, 54, true},
    DTypeTraits{DType::kTQ2_0, "TQ2_0", 256, 66, true},
    DTypeTraits{DType::kMXFP4, "MXFP4", 32, 17, true},
    DTypeTraits{DType::kNVFP4, "NVFP4", 64, 36, true},
    DTypeTraits{DType::kQ1_0, "Q1_0", 128, 18, true},
    DTypeTraits{DType::kQ2_0, "Q2_0", 64, 18, true},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

const DTypeTraits* find_dtype(uint32_t type_number) {
  for (const DTypeTraits& t : kTable) {
    if (static_cast<uint32_t>(t.type) == type_number) return &t;
  }
  return nullptr;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeTraits& t : kTable) {
    if (t.name.size() != name.size()) continue;
    bool same = true;
    for (size_t i = 0; i < name.size(); ++i) same &= lower(t.name[i]) == lower(name[i]);
    if (same) return t.type;
  }
  return std::nullopt;
}

const DTypeTraits* dtype_table(size_t* count) {
  *count = kTable.size();
  return kTable.data();
}

const DTypeTraits& traits_of(DType type) {
  const DTypeTraits* t = find_dtype(static_cast<uint32_t>(type));
  CHECK(t != nullptr, "type %u", static_cast<unsigned>(type));
  return *t;
}

}  // namespace okibi
