// Pieces that qwen35 and qwen4exp share: Gated DeltaNet and gated attention, as weights to load,
// buffers and operations to run. Formulas: spec of qwen4exp, sections 3.4, 3.5 and 4.
#pragma once

#include <cstdint>
#include <string>

#include "model/families/qwen_hparams.h"
#include "model/families/rows_plan.h"
#include "model/model.h"
#include "model/weight_loader.h"
#include "ops/ops.h"

namespace okibi::model {

// blk.i.{attn_qkv, attn_gate, ssm_*}
struct DeltaNet {
  ops::Weight qkv, gate, beta, alpha, output;
  ops::Vector conv_kernel, norm;
  ops::DeltaRule rule;
  uint64_t conv_offset = 0;
};
// Takes its place in the recurrent state from facts->state_floats on.
Result<DeltaNet> load_delta_net(WeightLoader& loader, const std::string& prefix,
                                const QwenHparams& q, ModelFacts* facts);

// blk.i.{attn_q, attn_k, attn_v, attn_output, attn_q_norm, attn_k_norm} and, with an index,
// blk.i.indexer.*.
struct GatedAttention {
  ops::Weight q, gate, k, v, output;
  ops::Vector q_norm, k_norm;
  int32_t n_heads = 0, kv_layer = 0;
  float scale = 0;
  // With an index only.
  ops::Weight index_q, index_k;
  ops::Vector index_q_norm;
  ops::IndexKeys index_keys;
  bool is_sparse() const { return index_q.valid(); }
};
// Appends to facts->kv_layers. n_index_heads counts only where `index` is valid.
Result<GatedAttention> load_gated_attention(WeightLoader& loader, const std::string& prefix,
                                            const QwenHparams& q, const ops::IndexShape& index,
                                            int32_t n_index_heads, ModelFacts* facts);

// Buffers of both, and the rotations.
struct QwenMixers {
  ops::Rows qkv, conv, z, beta, alpha;        // Gated DeltaNet
  ops::Rows delta;                            // its heads before the output projection
  ops::Rows q, gate, k, v, index_q, index_k;  // attention
  ops::Rows attended;                         // the same
  ops::Rope rope, index_rope;
  float eps = 0;
  ops::GateKind delta_gate = ops::GateKind::kSigmoid;

  void plan_rows(const QwenHparams& q, const ops::IndexShape& index, int32_t n_index_heads,
                 RowsPlan* plan);
  void add_ropes(ops::Backend& backend, const Hparams& h, const ops::IndexShape& index);
};

// m.delta or m.attended = the layer's heads for `in` (d_model); the output projection is the
// caller's.
void run_delta_net(ops::Backend& b, const DeltaNet& d, const QwenMixers& m, ops::Rows in);
void run_gated_attention(ops::Backend& b, const GatedAttention& a, const QwenMixers& m,
                         ops::Rows in);
// The same in two parts, between which rows may be dropped (keep_tails of `in`): keys and values of
// all rows, then the heads of those that are left. Without an index.
void store_keys_values(ops::Backend& b, const GatedAttention& a, const QwenMixers& m, ops::Rows in);
void run_gated_queries(ops::Backend& b, const GatedAttention& a, const QwenMixers& m, ops::Rows in);

}  // namespace okibi::model
