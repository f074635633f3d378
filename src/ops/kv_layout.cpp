// Sizes of stored keys and values: pure arithmetic on a KvConfig.
#include "ops/kv_layout.h"

#include <algorithm>

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

namespace {

void add_index_layout(const KvConfig& config, KvLayout& layout) {
  const auto page_tokens = static_cast<uint64_t>(config.page_tokens);
  for (const KvLayerShape& shape : config.layers) {
    IndexLayerLayout layer;
    if (shape.index.valid()) {
      CHECK(shape.index.block_tokens > 0 && config.page_tokens % shape.index.block_tokens == 0,
            "pages of %d tokens, blocks of %d", config.page_tokens, shape.index.block_tokens);
      const uint64_t row = static_cast<uint64_t>(shape.index.dim) * sizeof(float);
      layer.pooled_page_bytes = page_tokens / static_cast<uint64_t>(shape.index.block_tokens) * row;
      if (config.sparse.keep_pooled) {
        layer.pooled_offset = layout.pooled_bytes;
        layout.pooled_bytes += layer.pooled_page_bytes * config.max_pages;
      } else {
        layer.raw_page_bytes = page_tokens * row;
        layer.raw_offset = layout.raw_bytes;
        layout.raw_bytes += layer.raw_page_bytes * config.max_pages;
        layout.pooled_bytes =
            std::max(layout.pooled_bytes, layer.pooled_page_bytes * config.max_pages);
      }
    }
    layout.index.push_back(layer);
  }
}

}  // namespace

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
  add_index_layout(config, layout);
  return layout;
}

uint64_t kv_page_bytes(const KvConfig& config) {
  const KvLayout layout = make_kv_layout(config);
  uint64_t n_bytes = layout.page_bytes, shared = 0;
  for (const IndexLayerLayout& layer : layout.index) {
    n_bytes += layer.raw_page_bytes;
    if (config.sparse.keep_pooled) n_bytes += layer.pooled_page_bytes;
    shared = std::max(shared, layer.pooled_page_bytes);
  }
  return config.sparse.keep_pooled ? n_bytes : n_bytes + shared;
}

}  // namespace okibi::ops
