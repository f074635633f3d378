// The element types a GGUF tensor can have, with the sizes that the format fixes.
// Source: spec of the GGUF container, section "tensor types". Formulas: tensor/dequantize.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace okibi {

// Values are the type numbers stored in files.
enum class DType : uint32_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ8_1 = 9,
  kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kQ8_K = 15,
  kIQ2_XXS = 16, kIQ2_XS = 17, kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21,
  kIQ2_S = 22, kIQ4_XS = 23, kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27, kF64 = 28,
  kIQ1_M = 29, kBF16 = 30, kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40,
  kQ1_0 = 41, kQ2_0 = 42,
};

struct DTypeTraits {
  DType type;
  std::string_view name;  // as people write it: "Q4_K"
  uint32_t block_size;    // values per block, along the row
  uint32_t block_bytes;   // bytes per block
  bool is_weight;         // may stand as a matrix of a model (not an index or activation format)
};

// Null for a number that is not in the table (removed, unknown or another project's).
const DTypeTraits* find_dtype(uint32_t type_number);
// Case-insensitive by name ("q4_k").
std::optional<DType> dtype_from_name(std::string_view name);
// All of them, ascending by number.
const DTypeTraits* dtype_table(size_t* count);

// For types that are known to be in the table.
const DTypeTraits& traits_of(DType type);
inline std::string_view name_of(DType type) { return traits_of(type).name; }
// Bytes of a row of n values; n is a multiple of the block size.
inline uint64_t row_bytes(DType type, uint64_t n) {
  const DTypeTraits& t = traits_of(type);
  return n / t.block_size * t.block_bytes;
}

}  // namespace okibi
