// See check_data.h. Where the scales of a block lie stands in one table here; how they are used is
// in tensor/dequantize*.cpp.
#include "gguf/check_data.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "gguf/value.h"
#include "tensor/block_io.h"

namespace okibi::gguf {
namespace {

constexpr int kNone = -1;

// Byte offsets of the f16 numbers in a block; kNone where there are fewer than two.
struct ScalePlaces {
  int first = kNone, second = kNone;
};

ScalePlaces scale_places(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kQ1_0:
    case DType::kQ2_0:
    case DType::kIQ1_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ8_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    default:
      return {};
  }
}

bool is_finite_f16(uint16_t h) {
  return (h & 0x7c00u) != 0x7c00u;
}

uint16_t iq1_m_scale(const uint8_t* b) {
  uint16_t bits = 0;
  for (int k = 0; k < 4; ++k) {
    bits |= static_cast<uint16_t>((load_u16(b + 48 + 2 * k) >> 12) << (4 * k));
  }
  return bits;
}

bool block_is_sound(DType type, const ScalePlaces& places, const uint8_t* b) {
  switch (type) {
    case DType::kF16:
      return is_finite_f16(load_u16(b));
    case DType::kBF16:
      return (load_u16(b) & 0x7f80u) != 0x7f80u;
    case DType::kF32:
    case DType::kQ8_K:
      return (load_u32(b) & 0x7f800000u) != 0x7f800000u;
    case DType::kF64: {
      double value;
      std::memcpy(&value, b, sizeof value);
      return std::isfinite(value);
    }
    case DType::kIQ1_M:
      return is_finite_f16(iq1_m_scale(b));
    case DType::kMXFP4:
      return b[0] != 0xff;
    default:
      break;
  }
  return (places.first == kNone || is_finite_f16(load_u16(b + places.first))) &&
         (places.second == kNone || is_finite_f16(load_u16(b + places.second)));
}

}  // namespace

Status check_tensor_data(const File& file, const TensorInfo& info) {
  const DTypeTraits& traits = traits_of(info.type);
  const ScalePlaces places = scale_places(info.type);
  const std::span<const uint8_t> data = file.data(info);
  for (uint64_t at = 0; at < data.size(); at += traits.block_bytes) {
    if (block_is_sound(info.type, places, data.data() + at)) continue;
    const uint64_t value = at / traits.block_bytes * traits.block_size;
    return bad_data(fmt::format("tensor {}: {} is not finite at value {} (row {})",
                                quoted(info.name), traits.block_size == 1 ? "a number" : "a scale",
                                value, value / info.ne[0]));
  }
  return ok_status();
}

}  // namespace okibi::gguf
