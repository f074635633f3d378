// Where keys and values lie inside a page: page-major, layer after layer, K before V, head after
// head, page_tokens rows of each. Shared by the backends and by whoever counts bytes.
//
// Index keys lie in memory of their own, layer-major: a layer's rows of consecutive pages are
// neighbours, because scoring reads all of them and nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace okibi::ops {

// Bytes of one head's row of `dim` values (Q8_0: a multiple of 32).
uint64_t kv_row_bytes(KvType type, int32_t dim);

struct KvLayerLayout {
  uint64_t k_offset = 0, v_offset = 0;        // from the start of the page
  uint64_t k_row_bytes = 0, v_row_bytes = 0;  // one head, one position
};

// Index keys of one layer, float32: pooled ones, a row per block, and where those are not kept the
// keys of all positions. Page p's rows begin at offset + p * page_bytes.
struct IndexLayerLayout {
  uint64_t pooled_offset = 0, pooled_page_bytes = 0;
  uint64_t raw_offset = 0, raw_page_bytes = 0;
};

struct KvLayout {
  std::vector<KvLayerLayout> layers;
  uint64_t page_bytes = 0;  // a multiple of the system's page
  std::vector<IndexLayerLayout> index;
  // Of all layers and max_pages. Where pooled keys are not kept, layers take turns in one part.
  uint64_t pooled_bytes = 0, raw_bytes = 0;
};

KvLayout make_kv_layout(const KvConfig& config);

}  // namespace okibi::ops
