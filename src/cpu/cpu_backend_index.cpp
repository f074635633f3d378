// Index keys of sparse attention: their memory, which follows that of the pages, and pooling. A
// block's keys are pooled when its last one arrives; those of the open block wait in the sequence's
// slot, so that whatever happens to the slot (copies, snapshots, going back) happens to them.
#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/checked_math.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

Status CpuBackend::set_index(const ops::KvConfig& config) {
  selections_.resize(config.layers.size());
  index_keys_.resize(config.layers.size());
  int64_t largest_k = 0, largest_dim = 0, largest_v_dim = 0;
  int64_t smallest_block = config.page_tokens;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const ops::IndexShape& shape = config.layers[i].index;
    index_keys_[i].kv_layer = -1;  // not seen yet
    if (!shape.valid()) continue;
    if (shape.dim % 16 != 0 || shape.dim > kMaxIndexDim || shape.block_tokens > kMaxBlockTokens ||
        shape.budget <= 0 || shape.budget % shape.block_tokens != 0) {
      return unsupported("an index of keys of " + std::to_string(shape.dim) +
                         " values, blocks of " + std::to_string(shape.block_tokens) +
                         " and a budget of " + std::to_string(shape.budget) +
                         "; keys must be a multiple of 16 values, at most 512, and the budget one "
                         "of the block");
    }
    selections_[i].n_blocks = shape.budget / shape.block_tokens;
    largest_k = std::max<int64_t>(largest_k, selections_[i].n_blocks);
    largest_dim = std::max<int64_t>(largest_dim, shape.dim);
    largest_v_dim = std::max<int64_t>(largest_v_dim, config.layers[i].v_dim);
    smallest_block = std::min<int64_t>(smallest_block, shape.block_tokens);
  }
  if (largest_k == 0) return ok_status();
  OKIBI_RETURN_IF_ERROR(grow(pooled_keys_, kv_layout_.pooled_bytes + kReadPast, true)
                            .with_context("pooled index keys"));
  OKIBI_RETURN_IF_ERROR(
      grow(raw_keys_, kv_layout_.raw_bytes + kReadPast, true).with_context("index keys"));
  // Totals of a tile of queries, and the record that comes next to one of them.
  list_records_stride_ = align_up(static_cast<uint64_t>((kListTileRows + 1) * kMaxGroup *
                                                        attend_record_floats(largest_v_dim) * 4),
                                  4096) +
                         64;
  OKIBI_RETURN_IF_ERROR(
      grow(list_records_, list_records_stride_ * static_cast<uint64_t>(pool_.n_threads()), false));
  return set_index_scratch(largest_k, largest_dim, smallest_block);
}

Status CpuBackend::set_index_scratch(int64_t largest_k, int64_t largest_dim,
                                     int64_t smallest_block) {
  const auto n_threads = static_cast<uint64_t>(pool_.n_threads());
  const auto n_positions =
      static_cast<uint64_t>(kv_config_.max_pages) * static_cast<uint64_t>(kv_config_.page_tokens);
  const uint64_t n_blocks = n_positions / static_cast<uint64_t>(smallest_block);
  select_scratch_stride_ =
      align_up(static_cast<uint64_t>(select_scratch_floats(largest_k, largest_dim)) * 4, 4096) + 64;
  OKIBI_RETURN_IF_ERROR(grow(select_scratch_, select_scratch_stride_ * n_threads, true));
  OKIBI_RETURN_IF_ERROR(
      grow(select_records_,
           static_cast<uint64_t>(select_record_bytes(largest_k, pool_.n_threads())), false));
  if (!kv_config_.sparse.keep_pooled) {
    OKIBI_RETURN_IF_ERROR(
        grow(block_turns_, n_blocks * static_cast<uint64_t>(largest_dim) * 4, false));
  }
  if (!kv_config_.sparse.select_blocks) {
    cells_stride_ = align_up(n_positions * sizeof(uint64_t), 64);
    OKIBI_RETURN_IF_ERROR(grow(cells_, cells_stride_ * n_threads, false));
    const uint64_t row_blocks = align_up(n_blocks, kIndexChunk);
    OKIBI_RETURN_IF_ERROR(grow(block_scores_, row_blocks * kIndexTileRows * 4, false));
  }
  return ok_status();
}

const ops::IndexShape& CpuBackend::index_shape(int32_t kv_layer) const {
  CHECK(has_kv_ && kv_layer >= 0 && static_cast<size_t>(kv_layer) < kv_layout_.layers.size(),
        "K/V layer %d", kv_layer);
  const ops::IndexShape& shape = kv_config_.layers[static_cast<size_t>(kv_layer)].index;
  CHECK(shape.valid(), "K/V layer %d has no index", kv_layer);
  return shape;
}

float* CpuBackend::pooled_key(int32_t kv_layer, std::span<const ops::PageId> pages,
                              uint64_t block) {
  const auto i = static_cast<size_t>(kv_layer);
  const ops::IndexShape& shape = kv_config_.layers[i].index;
  const ops::IndexLayerLayout& layout = kv_layout_.index[i];
  const auto per_page = static_cast<uint64_t>(kv_config_.page_tokens / shape.block_tokens);
  DCHECK(block / per_page < pages.size(), "block %llu, %zu pages",
         static_cast<unsigned long long>(block), pages.size());
  uint8_t* rows = pooled_keys_.data() + layout.pooled_offset +
                  pages[block / per_page] * layout.pooled_page_bytes;
  return reinterpret_cast<float*>(rows) + block % per_page * static_cast<uint64_t>(shape.dim);
}

float* CpuBackend::raw_key(int32_t kv_layer, std::span<const ops::PageId> pages,
                           uint64_t position) {
  const auto i = static_cast<size_t>(kv_layer);
  const ops::IndexLayerLayout& layout = kv_layout_.index[i];
  const auto page_tokens = static_cast<uint64_t>(kv_config_.page_tokens);
  uint8_t* rows =
      raw_keys_.data() + layout.raw_offset + pages[position / page_tokens] * layout.raw_page_bytes;
  return reinterpret_cast<float*>(rows) +
         position % page_tokens * static_cast<uint64_t>(kv_config_.layers[i].index.dim);
}

void CpuBackend::copy_index(ops::PageId src, ops::PageId dst, int32_t n_tokens) {
  for (size_t i = 0; i < kv_config_.layers.size(); ++i) {
    const ops::IndexShape& shape = kv_config_.layers[i].index;
    if (!shape.valid()) continue;
    const ops::PageId pages[2] = {src, dst};
    const std::span<const ops::PageId> from(pages, 1), to(pages + 1, 1);
    const auto layer = static_cast<int32_t>(i);
    const size_t row = static_cast<size_t>(shape.dim) * sizeof(float);
    if (kv_config_.sparse.keep_pooled) {
      std::memcpy(pooled_key(layer, to, 0), pooled_key(layer, from, 0),
                  static_cast<size_t>(n_tokens / shape.block_tokens) * row);
    } else {
      std::memcpy(raw_key(layer, to, 0), raw_key(layer, from, 0),
                  static_cast<size_t>(n_tokens) * row);
    }
  }
}

// Whole system pages only: the layout aligns nothing for this.
void CpuBackend::discard_index(ops::PageId id) {
  for (const ops::IndexLayerLayout& l : kv_layout_.index) {
    if (l.pooled_page_bytes > 0) {
      pooled_keys_.discard(l.pooled_offset + id * l.pooled_page_bytes, l.pooled_page_bytes);
    }
    if (l.raw_page_bytes > 0) {
      raw_keys_.discard(l.raw_offset + id * l.raw_page_bytes, l.raw_page_bytes);
    }
  }
}

// The pooled key of a block from its keys in order.
void CpuBackend::pool_block(const ops::IndexKeys& keys, const float* const* rows,
                            const float* cos_sin, float* out) const {
  const ops::IndexShape& shape = index_shape(keys.kv_layer);
  const ops::RopeConfig& c = ropes_[static_cast<size_t>(keys.rope.id)].config;
  index_kernels_.mean(rows, shape.block_tokens, shape.dim, out);
  kernels_.rms_norm(out, vector(keys.gamma).data(), shape.dim, keys.eps, out);
  const auto rotate =
      c.style == ops::RopeStyle::kAdjacent ? kernels_.rope_adjacent : kernels_.rope_half;
  rotate(out, 1, shape.dim, c.n_rot, cos_sin);
}

void CpuBackend::index_append(const ops::IndexKeys& keys, ops::Rows k) {
  const ZoneTimer timer(*this, Zone::kIndex, "append");
  check_all_rows();
  const ops::IndexShape& shape = index_shape(keys.kv_layer);
  const RowsBuffer& in = rows(k);
  const int64_t n_kept = int64_t{shape.block_tokens - 1} * shape.dim;
  CHECK(in.cols == shape.dim && in.n_valid == plan_->n_rows &&
            static_cast<int64_t>(vector(keys.gamma).size()) == shape.dim,
        "index keys of %lld, gamma of %zu, the layer has %d", static_cast<long long>(in.cols),
        vector(keys.gamma).size(), shape.dim);
  CHECK(keys.rope.id >= 0 && static_cast<size_t>(keys.rope.id) < ropes_.size() &&
            ropes_[static_cast<size_t>(keys.rope.id)].config.head_dim == shape.dim,
        "rope %d for index keys of %d", keys.rope.id, shape.dim);
  CHECK(keys.state_offset + static_cast<uint64_t>(n_kept) <= state_config_.floats_per_slot,
        "state at %llu", static_cast<unsigned long long>(keys.state_offset));
  index_keys_[static_cast<size_t>(keys.kv_layer)] = keys;
  for (const ops::SequenceSpan& s : plan_->sequences) append_index_rows(keys, in, s);
}

void CpuBackend::append_index_rows(const ops::IndexKeys& keys, const RowsBuffer& in,
                                   const ops::SequenceSpan& s) {
  const ops::IndexShape& shape = index_shape(keys.kv_layer);
  const auto block_tokens = static_cast<uint64_t>(shape.block_tokens);
  const auto dim = static_cast<uint64_t>(shape.dim);
  const size_t row_bytes = dim * sizeof(float);
  const uint64_t n_past = s.n_past, n = n_past + s.n_rows;
  const uint64_t first_block = n_past / block_tokens, end_block = n / block_tokens;
  CHECK(s.pages.size() * static_cast<uint64_t>(kv_config_.page_tokens) >= n,
        "%llu positions, %zu pages", static_cast<unsigned long long>(n), s.pages.size());
  const float* kept = slot(s.src_slot) + keys.state_offset;
  const auto key_at = [&](uint64_t position) -> const float* {
    return position >= n_past ? in.row(static_cast<int64_t>(s.first_row + (position - n_past)))
                              : kept + position % block_tokens * dim;
  };
  if (!kv_config_.sparse.keep_pooled) {
    for_rows(s.n_rows, shape.dim, [&](int64_t r, int) {
      std::memcpy(raw_key(keys.kv_layer, s.pages, n_past + static_cast<uint64_t>(r)),
                  in.row(s.first_row + r), row_bytes);
    });
  } else {
    const RopeTable& rope = ropes_[static_cast<size_t>(keys.rope.id)];
    // Sines and cosines are most of the work.
    for_rows(static_cast<int64_t>(end_block - first_block), int64_t{shape.dim} * 50,
             [&](int64_t i, int) {
               const uint64_t block = first_block + static_cast<uint64_t>(i);
               const float* keys_of_block[kMaxBlockTokens];
               for (uint64_t j = 0; j < block_tokens; ++j) {
                 keys_of_block[j] = key_at(block * block_tokens + j);
               }
               float cos_sin[kMaxIndexDim];
               rope.turn(static_cast<double>(block * block_tokens), cos_sin);
               pool_block(keys, keys_of_block, cos_sin, pooled_key(keys.kv_layer, s.pages, block));
             });
  }
  // The open block's keys; rows that hold none are zero, however the sequence came here.
  float* out = slot(s.dst_slot) + keys.state_offset;
  for (uint64_t j = 0; j + 1 < block_tokens; ++j) {
    const uint64_t position = end_block * block_tokens + j;
    if (position >= n) {
      std::memset(out + j * dim, 0, row_bytes);
    } else if (key_at(position) != out + j * dim) {
      std::memcpy(out + j * dim, key_at(position), row_bytes);
    }
  }
}

// Pools all blocks of the step's sequences from the keys of all positions.
void CpuBackend::pool_again(int32_t kv_layer) {
  const ops::IndexKeys& keys = index_keys_[static_cast<size_t>(kv_layer)];
  CHECK(keys.kv_layer == kv_layer, "K/V layer %d has not seen index keys", kv_layer);
  const ops::IndexShape& shape = index_shape(kv_layer);
  const auto block_tokens = static_cast<uint64_t>(shape.block_tokens);
  const RopeTable& rope = ropes_[static_cast<size_t>(keys.rope.id)];
  auto* turns = reinterpret_cast<float*>(block_turns_.data());
  const int64_t n_rot = rope.config.n_rot;
  if (turned_rope_ != keys.rope.id || turned_block_ != shape.block_tokens) {
    turned_rope_ = keys.rope.id;
    turned_block_ = shape.block_tokens;
    n_block_turns_ = 0;
  }
  for (const ops::SequenceSpan& s : plan_->sequences) {
    const auto n_blocks = static_cast<int64_t>((s.n_past + s.n_rows) / block_tokens);
    // Angles of positions seen before are kept: engines take them from a table.
    const int64_t n_known = std::min(n_block_turns_, n_blocks);
    for_rows(n_blocks - n_known, n_rot * 50, [&](int64_t i, int) {
      const int64_t b = n_known + i;
      rope.turn(static_cast<double>(b) * shape.block_tokens, turns + b * n_rot);
    });
    n_block_turns_ = std::max(n_block_turns_, n_blocks);
    for_rows(n_blocks, int64_t{shape.dim} * shape.block_tokens, [&](int64_t b, int) {
      const float* keys_of_block[kMaxBlockTokens];
      for (uint64_t j = 0; j < block_tokens; ++j) {
        keys_of_block[j] = raw_key(kv_layer, s.pages, static_cast<uint64_t>(b) * block_tokens + j);
      }
      pool_block(keys, keys_of_block, turns + b * n_rot,
                 pooled_key(kv_layer, s.pages, static_cast<uint64_t>(b)));
    });
  }
}

}  // namespace okibi::cpu
