#include "apps/bench_work.h"

namespace okibi::apps {
namespace {

bool sees_everything(const AttentionInfo& layer, uint64_t n) {
  return layer.block_tokens == 0 || n <= uint64_t{layer.budget} + layer.block_tokens - 1;
}

// Bytes of index keys, scores and cells of one query with n positions.
double index_bytes(const AttentionInfo& layer, const SparseOptions& sparse, uint64_t n) {
  if (layer.block_tokens == 0) return 0;
  const auto key = static_cast<double>(layer.index_key_bytes);
  const auto n_scored = static_cast<double>(blocks_scored(layer, n));
  double bytes = n_scored * key;
  if (!sparse.keep_pooled) {
    const auto n_blocks = static_cast<double>(n / layer.block_tokens);
    bytes += n_blocks * (layer.block_tokens + 1) * key;
  }
  if (!sparse.select_blocks) {
    bytes += 2 * n_scored * (sizeof(float) + layer.block_tokens * sizeof(uint64_t));
  }
  return bytes;
}

}  // namespace

uint64_t rows_attended(const AttentionInfo& layer, const SparseOptions& sparse, uint64_t n) {
  if (sees_everything(layer, n) || !sparse.attend_selected) return n;
  return layer.budget + n % layer.block_tokens;
}

uint64_t blocks_scored(const AttentionInfo& layer, uint64_t n) {
  return sees_everything(layer, n) ? 0 : n / layer.block_tokens;
}

TokenBytes decode_bytes(const ModelInfo& info, const SparseOptions& sparse, uint64_t n_before,
                        uint32_t n_tokens) {
  TokenBytes bytes;
  bytes.experts = static_cast<double>(info.expert_bytes_per_token);
  bytes.output = static_cast<double>(info.output_bytes);
  bytes.dense = static_cast<double>(info.weight_bytes_per_token) - bytes.experts - bytes.output;
  bytes.state = 2.0 * static_cast<double>(info.state_bytes);
  for (const AttentionInfo& layer : info.attention) {
    for (uint32_t i = 0; i < n_tokens; ++i) {
      const uint64_t n = n_before + i + 1;
      bytes.kv += static_cast<double>(rows_attended(layer, sparse, n) * layer.row_bytes);
      bytes.index += index_bytes(layer, sparse, n);
    }
  }
  bytes.kv /= n_tokens;
  bytes.index /= n_tokens;
  return bytes;
}

TokenOps token_ops(const ModelInfo& info, const SparseOptions& sparse, uint64_t n_before,
                   uint32_t n_tokens, uint32_t n_outputs) {
  TokenOps ops;
  ops.matrices =
      2.0 * static_cast<double>(info.macs_per_token - info.tail_macs_per_token) +
      2.0 * static_cast<double>(info.tail_macs_per_token + info.output_macs) * n_outputs / n_tokens;
  for (const AttentionInfo& layer : info.attention) {
    for (uint32_t i = layer.only_tails ? n_tokens - n_outputs : 0; i < n_tokens; ++i) {
      const uint64_t n = n_before + i + 1;
      ops.attention += 2.0 * static_cast<double>(rows_attended(layer, sparse, n) * layer.row_macs);
      ops.scores += 2.0 * static_cast<double>(blocks_scored(layer, n) * layer.score_macs);
    }
  }
  ops.attention /= n_tokens;
  ops.scores /= n_tokens;
  return ops;
}

}  // namespace okibi::apps
