#include "model/families/qwen_parts.h"

#include <algorithm>

#include "base/checked_math.h"

namespace okibi::model {
namespace {

// Parts of the recurrent state begin on a cache line.
uint64_t take_state(ModelFacts* facts, int64_t n_floats) {
  const uint64_t offset = align_up(facts->state_floats, 16);
  facts->state_floats = offset + static_cast<uint64_t>(n_floats);
  return offset;
}

int64_t key_width(const QwenHparams& q) {
  return int64_t{q.n_key_heads} * q.delta_dim;
}
int64_t value_width(const QwenHparams& q) {
  return int64_t{q.n_value_heads} * q.delta_dim;
}

}  // namespace

Result<DeltaNet> load_delta_net(WeightLoader& loader, const std::string& prefix,
                                const QwenHparams& q, ModelFacts* facts) {
  const int64_t d = q.h.d_model;
  const int64_t channels = 2 * key_width(q) + value_width(q);
  DeltaNet net;
  OKIBI_ASSIGN_OR_RETURN(net.qkv, loader.matrix(prefix + "attn_qkv", d, channels));
  OKIBI_ASSIGN_OR_RETURN(net.gate, loader.matrix(prefix + "attn_gate", d, value_width(q)));
  OKIBI_ASSIGN_OR_RETURN(net.conv_kernel,
                         loader.vector(prefix + "ssm_conv1d.weight", q.n_taps * channels));
  OKIBI_ASSIGN_OR_RETURN(net.beta, loader.matrix(prefix + "ssm_beta", d, q.n_value_heads));
  OKIBI_ASSIGN_OR_RETURN(net.alpha, loader.matrix(prefix + "ssm_alpha", d, q.n_value_heads));
  OKIBI_ASSIGN_OR_RETURN(net.rule.dt_bias, loader.vector(prefix + "ssm_dt.bias", q.n_value_heads));
  OKIBI_ASSIGN_OR_RETURN(net.rule.a, loader.vector(prefix + "ssm_a", q.n_value_heads));
  OKIBI_ASSIGN_OR_RETURN(net.norm, loader.vector(prefix + "ssm_norm.weight", q.delta_dim));
  OKIBI_ASSIGN_OR_RETURN(net.output, loader.matrix(prefix + "ssm_out", value_width(q), d));
  net.rule.n_key_heads = q.n_key_heads;
  net.rule.n_value_heads = q.n_value_heads;
  net.rule.head_dim = q.delta_dim;
  net.conv_offset = take_state(facts, (q.n_taps - 1) * channels);
  net.rule.state_offset = take_state(facts, value_width(q) * q.delta_dim);
  return net;
}

Result<GatedAttention> load_gated_attention(WeightLoader& loader, const std::string& prefix,
                                            const QwenHparams& q, const ops::IndexShape& index,
                                            int32_t n_index_heads, ModelFacts* facts) {
  const Hparams& h = q.h;
  const int64_t d = h.d_model;
  GatedAttention a;
  a.n_heads = q.n_heads;
  a.scale = q.attention_scale;
  // Each head's rows of attn_q are its query, then its gate.
  const int64_t period = int64_t{h.k_dim} + h.v_dim;
  WeightLoader::Interleaved rows = {
      .n_rows = q.n_heads * period, .period = period, .first = 0, .n_out = h.k_dim};
  OKIBI_ASSIGN_OR_RETURN(a.q, loader.interleaved(prefix + "attn_q", d, rows));
  rows.first = h.k_dim;
  rows.n_out = h.v_dim;
  OKIBI_ASSIGN_OR_RETURN(a.gate, loader.interleaved(prefix + "attn_q", d, rows));
  OKIBI_ASSIGN_OR_RETURN(a.k, loader.matrix(prefix + "attn_k", d, int64_t{q.n_kv_heads} * h.k_dim));
  OKIBI_ASSIGN_OR_RETURN(a.v, loader.matrix(prefix + "attn_v", d, int64_t{q.n_kv_heads} * h.v_dim));
  OKIBI_ASSIGN_OR_RETURN(a.output,
                         loader.matrix(prefix + "attn_output", int64_t{q.n_heads} * h.v_dim, d));
  OKIBI_ASSIGN_OR_RETURN(a.q_norm, loader.vector(prefix + "attn_q_norm.weight", h.k_dim));
  OKIBI_ASSIGN_OR_RETURN(a.k_norm, loader.vector(prefix + "attn_k_norm.weight", h.k_dim));
  a.kv_layer = static_cast<int32_t>(facts->kv_layers.size());
  facts->kv_layers.push_back({q.n_kv_heads, h.k_dim, h.v_dim, index});
  facts->query_heads.push_back({q.n_heads, index.valid() ? n_index_heads : 0});
  if (!index.valid()) return a;
  OKIBI_ASSIGN_OR_RETURN(
      a.index_q, loader.matrix(prefix + "indexer.q_proj", d, int64_t{n_index_heads} * index.dim));
  OKIBI_ASSIGN_OR_RETURN(a.index_k, loader.matrix(prefix + "indexer.k_proj", d, index.dim));
  OKIBI_ASSIGN_OR_RETURN(a.index_q_norm,
                         loader.vector(prefix + "indexer.q_norm.weight", index.dim));
  OKIBI_ASSIGN_OR_RETURN(a.index_keys.gamma,
                         loader.vector(prefix + "indexer.k_norm.weight", index.dim));
  a.index_keys.kv_layer = a.kv_layer;
  a.index_keys.eps = h.norm_eps;
  a.index_keys.state_offset = take_state(facts, int64_t{index.block_tokens - 1} * index.dim);
  return a;
}

void QwenMixers::plan_rows(const QwenHparams& q, const ops::IndexShape& index,
                           int32_t n_index_heads, RowsPlan* plan) {
  const Hparams& h = q.h;
  const int64_t channels = 2 * key_width(q) + value_width(q);
  const int64_t heads = q.n_heads;
  eps = h.norm_eps;
  plan->row(&qkv, channels);
  plan->row(&conv, channels);
  plan->row(&z, value_width(q));
  plan->row(&beta, q.n_value_heads);
  plan->row(&alpha, q.n_value_heads);
  plan->row(&delta, value_width(q));
  plan->row(&this->q, std::max<int64_t>(heads, 1) * h.k_dim);
  plan->row(&gate, std::max<int64_t>(heads, 1) * h.v_dim);
  plan->row(&k, std::max<int64_t>(q.n_kv_heads, 1) * h.k_dim);
  plan->row(&v, std::max<int64_t>(q.n_kv_heads, 1) * h.v_dim);
  plan->row(&attended, std::max<int64_t>(heads, 1) * h.v_dim);
  if (!index.valid()) return;
  plan->row(&index_q, int64_t{n_index_heads} * index.dim);
  plan->row(&index_k, index.dim);
}

void QwenMixers::add_ropes(ops::Backend& backend, const Hparams& h, const ops::IndexShape& index) {
  ops::RopeConfig config = {.style = ops::RopeStyle::kHalfSplit,
                            .head_dim = h.k_dim,
                            .n_rot = h.n_rot,
                            .freq_base = h.rope_freq_base};
  rope = backend.add_rope(config);
  if (!index.valid()) return;
  config.head_dim = index.dim;
  index_rope = backend.add_rope(config);
}

void run_delta_net(ops::Backend& b, const DeltaNet& d, const QwenMixers& m, ops::Rows in) {
  const ops::Weight weights[] = {d.qkv, d.gate, d.beta, d.alpha};
  const ops::Rows outs[] = {m.qkv, m.z, m.beta, m.alpha};
  b.project(in, weights, outs);
  b.causal_conv(d.conv_offset, m.qkv, d.conv_kernel, m.conv);
  b.delta_rule(d.rule, m.conv, m.alpha, m.beta, m.delta);
  b.gated_norm(m.z, m.delta_gate, d.norm, m.eps, m.delta);
}

namespace {

// Of projected keys and values.
void append_keys_values(ops::Backend& b, const GatedAttention& a, const QwenMixers& m) {
  b.norm_heads(m.k, a.k_norm, m.eps);
  b.rope(m.k, m.rope);
  b.kv_append(a.kv_layer, m.k, m.v);
}

// Of projected queries and gates, and of projected index rows where there are any.
void attend_queries(ops::Backend& b, const GatedAttention& a, const QwenMixers& m) {
  b.norm_heads(m.q, a.q_norm, m.eps);
  b.rope(m.q, m.rope);
  if (a.is_sparse()) {
    ops::IndexKeys keys = a.index_keys;
    keys.rope = m.index_rope;
    b.index_append(keys, m.index_k);
    b.norm_heads(m.index_q, a.index_q_norm, m.eps);
    b.rope(m.index_q, m.index_rope);
    b.select_blocks(a.kv_layer, m.index_q);
    b.attend_selected(a.kv_layer, m.q, a.n_heads, a.scale, m.attended);
  } else {
    b.attend(a.kv_layer, m.q, a.n_heads, a.scale, m.attended);
  }
  b.sigmoid_mul(m.gate, m.attended);
}

}  // namespace

void run_gated_attention(ops::Backend& b, const GatedAttention& a, const QwenMixers& m,
                         ops::Rows in) {
  const ops::Weight weights[] = {a.q, a.gate, a.k, a.v, a.index_q, a.index_k};
  const ops::Rows outs[] = {m.q, m.gate, m.k, m.v, m.index_q, m.index_k};
  const size_t n = a.is_sparse() ? 6 : 4;
  b.project(in, {weights, n}, {outs, n});
  append_keys_values(b, a, m);
  attend_queries(b, a, m);
}

void store_keys_values(ops::Backend& b, const GatedAttention& a, const QwenMixers& m,
                       ops::Rows in) {
  const ops::Weight weights[] = {a.k, a.v};
  const ops::Rows outs[] = {m.k, m.v};
  b.project(in, weights, outs);
  append_keys_values(b, a, m);
}

void run_gated_queries(ops::Backend& b, const GatedAttention& a, const QwenMixers& m,
                       ops::Rows in) {
  const ops::Weight weights[] = {a.q, a.gate};
  const ops::Rows outs[] = {m.q, m.gate};
  b.project(in, weights, outs);
  attend_queries(b, a, m);
}

}  // namespace okibi::model
