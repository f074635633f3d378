#include "model/families/parts.h"

#include <cmath>

namespace okibi::model {

Result<FeedForward> load_feed_forward(WeightLoader& loader, const std::string& prefix,
                                      int64_t d_model, int64_t d_ff) {
  FeedForward f;
  OKIBI_ASSIGN_OR_RETURN(f.gate, loader.matrix(prefix + "ffn_gate", d_model, d_ff));
  OKIBI_ASSIGN_OR_RETURN(f.up, loader.matrix(prefix + "ffn_up", d_model, d_ff));
  OKIBI_ASSIGN_OR_RETURN(f.down, loader.matrix(prefix + "ffn_down", d_ff, d_model));
  return f;
}

Result<Attention> load_attention(WeightLoader& loader, const std::string& prefix, int64_t d_model,
                                 int32_t n_heads, int32_t n_kv_heads, int32_t k_dim, int32_t v_dim,
                                 bool has_head_norms) {
  Attention a;
  a.n_heads = n_heads;
  a.n_kv_heads = n_kv_heads;
  a.k_dim = k_dim;
  a.v_dim = v_dim;
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(k_dim)));
  const int64_t q = int64_t{n_heads} * k_dim;
  OKIBI_ASSIGN_OR_RETURN(a.q, loader.matrix(prefix + "attn_q", d_model, q));
  OKIBI_ASSIGN_OR_RETURN(a.k,
                         loader.matrix(prefix + "attn_k", d_model, int64_t{n_kv_heads} * k_dim));
  OKIBI_ASSIGN_OR_RETURN(a.v,
                         loader.matrix(prefix + "attn_v", d_model, int64_t{n_kv_heads} * v_dim));
  OKIBI_ASSIGN_OR_RETURN(a.output,
                         loader.matrix(prefix + "attn_output", int64_t{n_heads} * v_dim, d_model));
  if (has_head_norms) {
    OKIBI_ASSIGN_OR_RETURN(a.q_norm, loader.vector(prefix + "attn_q_norm.weight", k_dim));
    OKIBI_ASSIGN_OR_RETURN(a.k_norm, loader.vector(prefix + "attn_k_norm.weight", k_dim));
  }
  return a;
}

uint64_t ActivationWidths::bytes(int64_t max_rows, int64_t max_outputs) const {
  const int64_t per_row = 2 * d_model + q + k + v + mixed + 2 * d_ff;
  return static_cast<uint64_t>(max_rows * per_row + max_outputs * (d_model + n_vocab)) *
         sizeof(float);
}

Result<Activations> add_activation_rows(ops::Backend& backend, const ActivationWidths& widths,
                                        int64_t max_rows, int64_t max_outputs) {
  Activations act;
  OKIBI_ASSIGN_OR_RETURN(act.x, backend.add_rows(max_rows, widths.d_model));
  OKIBI_ASSIGN_OR_RETURN(act.normed, backend.add_rows(max_rows, widths.d_model));
  OKIBI_ASSIGN_OR_RETURN(act.q, backend.add_rows(max_rows, widths.q));
  OKIBI_ASSIGN_OR_RETURN(act.k, backend.add_rows(max_rows, widths.k));
  OKIBI_ASSIGN_OR_RETURN(act.v, backend.add_rows(max_rows, widths.v));
  OKIBI_ASSIGN_OR_RETURN(act.mixed, backend.add_rows(max_rows, widths.mixed));
  OKIBI_ASSIGN_OR_RETURN(act.gate, backend.add_rows(max_rows, widths.d_ff));
  OKIBI_ASSIGN_OR_RETURN(act.up, backend.add_rows(max_rows, widths.d_ff));
  OKIBI_ASSIGN_OR_RETURN(act.output, backend.add_rows(max_outputs, widths.d_model));
  OKIBI_ASSIGN_OR_RETURN(act.logits, backend.add_rows(max_outputs, widths.n_vocab));
  return act;
}

void fill_facts(ModelFacts& facts, const Hparams& h, const WeightLoader& loader,
                ops::Weight embedding, ops::Weight output) {
  facts.architecture = h.arch;
  facts.name = h.name;
  facts.n_layers = h.n_layers;
  facts.d_model = h.d_model;
  facts.n_vocab = h.n_vocab;
  facts.n_ctx_trained = h.n_ctx_trained;
  facts.n_parameters = loader.n_parameters();
  facts.weights = loader.weights();
  // One token reads a single row of an embedding table that is not also the output matrix.
  facts.weight_bytes_per_token = loader.packed_bytes();
  for (ops::Weight w : facts.weights) {
    const WeightLoader::PerToken used = loader.per_token(w);
    const bool is_read = w.id != embedding.id || w.id == output.id;
    facts.weight_bytes_per_token -= loader.bytes_of(w) - (is_read ? used.bytes : 0);
    if (w.n_matrices > 1) facts.expert_bytes_per_token += used.bytes;
    if (w.id == output.id) {
      facts.output_bytes = used.bytes;
      facts.output_macs = used.macs;
    } else if (w.id != embedding.id) {
      facts.macs_per_token += used.macs;
    }
  }
}

void count_tail(ModelFacts& facts, const WeightLoader& loader,
                std::initializer_list<ops::Weight> weights) {
  for (ops::Weight w : weights) facts.tail_macs_per_token += loader.per_token(w).macs;
}

namespace {

// Of projected keys and values.
void append_keys_values(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                        const Activations& act) {
  if (a.k_norm.valid()) b.norm_heads(act.k, a.k_norm, eps);
  b.rope(act.k, rope);
  b.kv_append(a.kv_layer, act.k, act.v);
}

// Of projected queries.
void attend_queries(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                    const Activations& act) {
  if (a.q_norm.valid()) b.norm_heads(act.q, a.q_norm, eps);
  b.rope(act.q, rope);
  b.attend(a.kv_layer, act.q, a.n_heads, a.scale, act.mixed);
  b.project_add(act.mixed, a.output, act.x);
}

}  // namespace

void run_attention(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                   const Activations& act) {
  const ops::Weight weights[] = {a.q, a.k, a.v};
  const ops::Rows outs[] = {act.q, act.k, act.v};
  b.project(act.normed, weights, outs);
  append_keys_values(b, a, rope, eps, act);
  attend_queries(b, a, rope, eps, act);
}

void store_keys_values(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                       const Activations& act) {
  const ops::Weight weights[] = {a.k, a.v};
  const ops::Rows outs[] = {act.k, act.v};
  b.project(act.normed, weights, outs);
  append_keys_values(b, a, rope, eps, act);
}

void run_queries(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                 const Activations& act) {
  b.project(act.normed, {&a.q, 1}, {&act.q, 1});
  attend_queries(b, a, rope, eps, act);
}

void run_feed_forward(ops::Backend& b, const FeedForward& f, const Activations& act) {
  b.gated_feed_forward(act.normed, f.gate, f.up, act.gate, act.up, f.down, act.x);
}

}  // namespace okibi::model
