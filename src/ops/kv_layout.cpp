// Sizes of stored keys and values: pure arithmetic on a KvConfig.
#include "ops/kv_layout.h"

#include "base/check.h"
#include "base/checked_math.h"
#include "tensor/dtype.h"

namespace okibi::ops {
namespace {

// Each layer's K and V begin on a cache line; a page begins on a system page so that discarding it
// gives all of its memory back.
constexpr uint64_t kPartAlignment = 64;
constexpr uint64_t kPageAlignment = 4096;

}  // namespace

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kQ8_0:
      return "q8_0";
  }
  return "?";
}

uint64_t kv_row_bytes(KvType type, int32_t dim) {
  const auto n = static_cast<uint64_t>(dim);
  switch (type) {
    case KvType::kF32:
      return row_bytes(DType::kF32, n);
    case KvType::kF16:
      return row_bytes(DType::kF16, n);
    case KvType::kQ8_0:
      return row_bytes(DType::kQ8_0, n);
  }
  CHECK(false, "K/V type %d", static_cast<int>(type));
  return 0;
}

KvLayout make_kv_layout(const KvConfig& config) {
  KvLayout layout;
  uint64_t offset = 0;
  for (const KvLayerShape& shape : config.layers) {
    const uint64_t n_rows =
        static_cast<uint64_t>(shape.n_kv_heads) * static_cast<uint64_t>(config.page_tokens);
    KvLayerLayout layer;
    layer.k_row_bytes = kv_row_bytes(config.type, shape.k_dim);
    layer.v_row_bytes = kv_row_bytes(config.type, shape.v_dim);
    layer.k_offset = offset;
    layer.v_offset = align_up(layer.k_offset + n_rows * layer.k_row_bytes, kPartAlignment);
    offset = align_up(layer.v_offset + n_rows * layer.v_row_bytes, kPartAlignment);
    layout.layers.push_back(layer);
  }
  layout.page_bytes = align_up(offset, kPageAlignment);
  return layout;
}

uint64_t kv_page_bytes(const KvConfig& config) {
  return make_kv_layout(config).page_bytes;
}

}  // namespace okibi::ops
