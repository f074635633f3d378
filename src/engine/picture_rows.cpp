#include "engine/picture_rows.h"

#include <algorithm>
#include <cstdint>

#include "reuse/vision_cache.h"

namespace okibi::engine {

void list_embeddings(std::span<const Prompt::Rows> rows, size_t first, size_t n,
                     std::vector<const float*>* embeddings) {
  embeddings->clear();
  for (const Prompt::Rows& r : rows) {
    const size_t begin = std::max(first, r.first);
    const size_t end = std::min(first + n, r.first + r.rows->n_rows);
    if (begin >= end) continue;
    embeddings->resize(n, nullptr);
    for (size_t i = begin; i < end; ++i) {
      (*embeddings)[i - first] = r.rows->row(static_cast<uint32_t>(i - r.first));
    }
  }
}

size_t first_row_difference(std::span<const Prompt::Rows> a, std::span<const Prompt::Rows> b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i].first == b[i].first &&
         a[i].rows->view == b[i].rows->view) {
    ++i;
  }
  return std::min(i < a.size() ? a[i].first : SIZE_MAX, i < b.size() ? b[i].first : SIZE_MAX);
}

}  // namespace okibi::engine
