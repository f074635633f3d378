// Chooses the block routine of a type and walks a row with it. The routines stand in
// dequantize_simple.cpp, dequantize_k.cpp and dequantize_iq.cpp.
#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/block_io.h"
#include "tensor/dequantize_blocks.h"

namespace okibi {
namespace {

using BlockFn = void (*)(const uint8_t* b, float* x);

BlockFn block_fn(DType type) {
  using namespace blocks;
  switch (type) {
    case DType::kQ4_0:
      return dequantize_q4_0;
    case DType::kQ4_1:
      return dequantize_q4_1;
    case DType::kQ5_0:
      return dequantize_q5_0;
    case DType::kQ5_1:
      return dequantize_q5_1;
    case DType::kQ8_0:
      return dequantize_q8_0;
    case DType::kQ8_1:
      return dequantize_q8_1;
    case DType::kQ8_K:
      return dequantize_q8_k;
    case DType::kQ1_0:
      return dequantize_q1_0;
    case DType::kQ2_0:
      return dequantize_q2_0;
    case DType::kTQ1_0:
      return dequantize_tq1_0;
    case DType::kTQ2_0:
      return dequantize_tq2_0;
    case DType::kMXFP4:
      return dequantize_mxfp4;
    case DType::kNVFP4:
      return dequantize_nvfp4;
    case DType::kQ2_K:
      return dequantize_q2_k;
    case DType::kQ3_K:
      return dequantize_q3_k;
    case DType::kQ4_K:
      return dequantize_q4_k;
    case DType::kQ5_K:
      return dequantize_q5_k;
    case DType::kQ6_K:
      return dequantize_q6_k;
    case DType::kIQ1_S:
      return dequantize_iq1_s;
    case DType::kIQ1_M:
      return dequantize_iq1_m;
    case DType::kIQ2_XXS:
      return dequantize_iq2_xxs;
    case DType::kIQ2_XS:
      return dequantize_iq2_xs;
    case DType::kIQ2_S:
      return dequantize_iq2_s;
    case DType::kIQ3_XXS:
      return dequantize_iq3_xxs;
    case DType::kIQ3_S:
      return dequantize_iq3_s;
    case DType::kIQ4_NL:
      return dequantize_iq4_nl;
    case DType::kIQ4_XS:
      return dequantize_iq4_xs;
    default:
      return nullptr;
  }
}

}  // namespace

void dequantize_row(DType type, const uint8_t* src, int64_t n, float* dst) {
  switch (type) {
    case DType::kF32:
      if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) dst[i] = load_f16(src + 2 * i);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_float(load_u16(src + 2 * i));
      return;
    default:
      break;
  }
  const BlockFn fn = block_fn(type);
  CHECK(fn != nullptr, "type %u holds no weights", static_cast<unsigned>(type));
  const DTypeTraits& t = traits_of(type);
  CHECK(n % t.block_size == 0, "%lld values, blocks of %u", static_cast<long long>(n),
        t.block_size);
  for (int64_t i = 0; i < n; i += t.block_size, src += t.block_bytes) fn(src, dst + i);
}

}  // namespace okibi
