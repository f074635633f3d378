// Pieces that several families share: attention with its rotation and the gated feed-forward, as
// weights to load and operations to run. A family's own file decides the order.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "model/hparams.h"
#include "model/model.h"
#include "model/weight_loader.h"
#include "ops/ops.h"

namespace okibi::model {

// blk.i.ffn_{gate,up,down}: down(silu(gate x) * up x)
struct FeedForward {
  ops::Weight gate, up, down;
};
Result<FeedForward> load_feed_forward(WeightLoader& loader, const std::string& prefix,
                                      int64_t d_model, int64_t d_ff);

// blk.i.attn_{q,k,v,output}, with optional norms of query and key heads.
struct Attention {
  ops::Weight q, k, v, output;
  ops::Vector q_norm, k_norm;  // invalid: none
  int32_t n_heads = 0, n_kv_heads = 0, k_dim = 0, v_dim = 0;
  int32_t kv_layer = 0;  // index among the attention layers
  float scale = 1.0f;
};
Result<Attention> load_attention(WeightLoader& loader, const std::string& prefix, int64_t d_model,
                                 int32_t n_heads, int32_t n_kv_heads, int32_t k_dim, int32_t v_dim,
                                 bool has_head_norms);

// Activation buffers of one kind of transformer; all (max_rows, ...) but the last two.
struct Activations {
  ops::Rows x;        // residual stream (d_model)
  ops::Rows normed;   // (d_model)
  ops::Rows q, k, v;  // heads
  ops::Rows mixed;    // attention or convolution result before its output projection
  ops::Rows gate, up;
  ops::Rows output;  // (max_outputs, d_model)
  ops::Rows logits;  // (max_outputs, n_vocab)
};
struct ActivationWidths {
  int64_t d_model = 0, q = 0, k = 0, v = 0, mixed = 0, d_ff = 0, n_vocab = 0;
  uint64_t bytes(int64_t max_rows, int64_t max_outputs) const;
};
Result<Activations> add_activation_rows(ops::Backend& backend, const ActivationWidths& widths,
                                        int64_t max_rows, int64_t max_outputs);

// What every family tells of itself once its weights are loaded. `output` is `embedding` when tied.
void fill_facts(ModelFacts& facts, const Hparams& h, const WeightLoader& loader,
                ops::Weight embedding, ops::Weight output);

// Matrices of the last layers that meet only the rows which keep_tails left.
void count_tail(ModelFacts& facts, const WeightLoader& loader,
                std::initializer_list<ops::Weight> weights);

// x += Attention(normed)
void run_attention(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                   const Activations& act);
// The same in two parts, between which rows may be dropped (keep_tails of x and normed): keys and
// values of all rows are stored, then x += Attention(normed) for those that are left.
void store_keys_values(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                       const Activations& act);
void run_queries(ops::Backend& b, const Attention& a, ops::Rope rope, float eps,
                 const Activations& act);
// x += FeedForward(normed)
void run_feed_forward(ops::Backend& b, const FeedForward& f, const Activations& act);

}  // namespace okibi::model
