// Where keys and values lie inside a page: page-major, layer after layer, K before V, head after
// head, page_tokens rows of each. Shared by the backends and by whoever counts bytes.
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

struct KvLayout {
  std::vector<KvLayerLayout> layers;
  uint64_t page_bytes = 0;  // a multiple of the system's page
};

KvLayout make_kv_layout(const KvConfig& config);

}  // namespace okibi::ops
