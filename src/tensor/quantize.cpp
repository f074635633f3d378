// Chooses the block quantiser of a type, checks the input and walks a row. The quantisers stand in
// quantize_simple.cpp, quantize_k.cpp and quantize_iq4.cpp.
#include "tensor/quantize.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "tensor/quantize_blocks.h"

namespace okibi {
namespace {

using BlockFn = bool (*)(const float* x, uint8_t* b);

BlockFn block_fn(DType type) {
  using namespace blocks;
  switch (type) {
    case DType::kQ8_0:
      return quantize_q8_0;
    case DType::kQ8_1:
      return quantize_q8_1;
    case DType::kQ8_K:
      return quantize_q8_k;
    case DType::kQ4_0:
      return quantize_q4_0;
    case DType::kQ4_1:
      return quantize_q4_1;
    case DType::kQ5_0:
      return quantize_q5_0;
    case DType::kQ5_1:
      return quantize_q5_1;
    case DType::kMXFP4:
      return quantize_mxfp4;
    case DType::kQ4_K:
      return quantize_q4_k;
    case DType::kQ5_K:
      return quantize_q5_k;
    case DType::kQ6_K:
      return quantize_q6_k;
    case DType::kIQ4_NL:
      return quantize_iq4_nl;
    case DType::kIQ4_XS:
      return quantize_iq4_xs;
    default:
      return nullptr;
  }
}

bool is_finite(float v) {
  return (float_to_bits(v) & 0x7f800000u) != 0x7f800000u;
}

// -1 when all are finite.
int64_t first_not_finite(const float* x, int64_t n) {
  uint32_t n_bad = 0;
  for (int64_t i = 0; i < n; ++i) n_bad += !is_finite(x[i]);
  if (n_bad == 0) return -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!is_finite(x[i])) return i;
  }
  return -1;
}

// F16 and BF16: NaN and infinities are carried over, a finite value that would become infinite is
// refused.
Status narrow_row(DType type, const float* src, int64_t n, uint8_t* dst) {
  const bool is_f16 = type == DType::kF16;
  const uint16_t exponent_mask = is_f16 ? 0x7c00u : 0x7f80u;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t h = is_f16 ? float_to_f16(src[i]) : float_to_bf16(src[i]);
    if ((h & exponent_mask) == exponent_mask && is_finite(src[i])) {
      return bad_data(
          fmt::format("value {} is {}, beyond the range of {}", i, src[i], name_of(type)));
    }
    store_u16(dst + 2 * i, h);
  }
  return ok_status();
}

}  // namespace

bool can_quantize_to(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 ||
         block_fn(type) != nullptr;
}

Status quantize_row(DType type, const float* src, int64_t n, uint8_t* dst) {
  if (type == DType::kF32) {
    if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
    return ok_status();
  }
  if (type == DType::kF16 || type == DType::kBF16) return narrow_row(type, src, n, dst);
  const BlockFn fn = block_fn(type);
  CHECK(fn != nullptr, "no quantiser for type %u", static_cast<unsigned>(type));
  const DTypeTraits& t = traits_of(type);
  CHECK(n % t.block_size == 0, "%lld values, blocks of %u", static_cast<long long>(n),
        t.block_size);
  if (const int64_t bad = first_not_finite(src, n); bad >= 0) {
    return bad_data(
        fmt::format("value {} is {}, but {} needs finite values", bad, src[bad], t.name));
  }
  for (int64_t i = 0; i < n; i += t.block_size, dst += t.block_bytes) {
    if (fn(src + i, dst)) continue;
    return bad_data(fmt::format(
        "values {} to {} are too large for {}: a scale or minimum does not fit f16 (at most 65504)",
        i, i + t.block_size - 1, t.name));
  }
  return ok_status();
}

}  // namespace okibi
