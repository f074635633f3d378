// A backend that passes everything on to a real one, for tests that plant a bug in one operation.
#pragma once

#include <memory>
#include <utility>

#include "ops/ops.h"

namespace okibi::test {

class ForwardingBackend : public ops::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<ops::Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string numeric_identity() const override { return inner_->numeric_identity(); }
  std::string describe_weight(ops::Weight w) const override { return inner_->describe_weight(w); }
  ExecTrace& trace() override { return inner_->trace(); }
  Result<ops::Weight> add_weight(const ops::WeightSource& s) override {
    return inner_->add_weight(s);
  }
  uint64_t packed_bytes(const ops::WeightSource& source) const override {
    return inner_->packed_bytes(source);
  }
  Result<ops::Vector> add_vector(std::span<const float> v) override {
    return inner_->add_vector(v);
  }
  Result<ops::Rows> add_rows(int64_t max_rows, int64_t cols) override {
    return inner_->add_rows(max_rows, cols);
  }
  Result<ops::Rows> add_input_rows(int64_t max_rows, int64_t cols,
                                   std::span<const ops::Weight> readers) override {
    return inner_->add_input_rows(max_rows, cols, readers);
  }
  ops::Rope add_rope(const ops::RopeConfig& c) override { return inner_->add_rope(c); }
  Status set_kv(const ops::KvConfig& c) override { return inner_->set_kv(c); }
  Status set_state(const ops::StateConfig& c) override { return inner_->set_state(c); }
  Status set_view_attention(int64_t n, int32_t n_heads, int32_t head_dim) override {
    return inner_->set_view_attention(n, n_heads, head_dim);
  }
  void copy_page(ops::PageId src, ops::PageId dst, int32_t n) override {
    inner_->copy_page(src, dst, n);
  }
  void discard_page(ops::PageId page) override { inner_->discard_page(page); }
  void zero_slot(ops::SlotId slot) override { inner_->zero_slot(slot); }
  void copy_slot(ops::SlotId src, ops::SlotId dst) override { inner_->copy_slot(src, dst); }
  void download_slot(ops::SlotId slot, std::span<float> out) const override {
    inner_->download_slot(slot, out);
  }
  void upload_slot(ops::SlotId slot, std::span<const float> in) override {
    inner_->upload_slot(slot, in);
  }
  std::span<const float> read(ops::Rows rows, int64_t row) const override {
    return inner_->read(rows, row);
  }
  void write(ops::Rows rows, int64_t row, std::span<const float> v) override {
    inner_->write(rows, row, v);
  }
  void begin_step(const ops::BatchPlan& plan) override { inner_->begin_step(plan); }
  void end_step() override { inner_->end_step(); }
  void set_layer(int32_t layer, const char* kind) override { inner_->set_layer(layer, kind); }
  void embed(ops::Weight table, ops::Rows out) override { inner_->embed(table, out); }
  void rms_norm(ops::Rows in, ops::Vector g, float eps, ops::Rows out) override {
    inner_->rms_norm(in, g, eps, out);
  }
  void norm_heads(ops::Rows x, ops::Vector g, float eps) override { inner_->norm_heads(x, g, eps); }
  void project(ops::Rows in, std::span<const ops::Weight> w,
               std::span<const ops::Rows> out) override {
    inner_->project(in, w, out);
  }
  void project_add(ops::Rows in, ops::Weight w, ops::Rows x) override {
    inner_->project_add(in, w, x);
  }
  void rope(ops::Rows x, ops::Rope r) override { inner_->rope(x, r); }
  void kv_append(int32_t layer, ops::Rows k, ops::Rows v) override {
    inner_->kv_append(layer, k, v);
  }
  void attend(int32_t layer, ops::Rows q, int32_t n_heads, float scale, ops::Rows out) override {
    inner_->attend(layer, q, n_heads, scale, out);
  }
  void short_conv(uint64_t offset, ops::Rows bcx, ops::Vector kernel, ops::Rows out) override {
    inner_->short_conv(offset, bcx, kernel, out);
  }
  void keep_tails(uint32_t n_before, std::span<const ops::Rows> inouts) override {
    inner_->keep_tails(n_before, inouts);
  }
  void silu_mul(ops::Rows gate, ops::Rows up, ops::Rows out) override {
    inner_->silu_mul(gate, up, out);
  }
  void gather_outputs(ops::Rows in, ops::Rows out) override { inner_->gather_outputs(in, out); }
  void logits(ops::Rows in, ops::Weight w, ops::Rows out) override { inner_->logits(in, w, out); }
  Status set_experts(const ops::ExpertsConfig& c) override { return inner_->set_experts(c); }
  Result<ops::NgramTable> add_ngram_table(const ops::NgramTableSource& s) override {
    return inner_->add_ngram_table(s);
  }
  void fill_random(const ops::SequenceSpan& s, uint64_t seed) override {
    inner_->fill_random(s, seed);
  }
  void rms_norm_groups(ops::Rows in, ops::Vector g, int32_t n, float eps, ops::Rows out) override {
    inner_->rms_norm_groups(in, g, n, eps, out);
  }
  void spread_streams(ops::Rows in, ops::Rows out) override { inner_->spread_streams(in, out); }
  void silu(ops::Rows x, float scale) override { inner_->silu(x, scale); }
  void mix_streams(ops::Rows n, ops::Rows mix, ops::Rows out) override {
    inner_->mix_streams(n, mix, out);
  }
  void inject_streams(ops::Rows y, ops::Rows s, ops::Rows x) override {
    inner_->inject_streams(y, s, x);
  }
  void sigmoid_mul(ops::Rows gate, ops::Rows x) override { inner_->sigmoid_mul(gate, x); }
  void causal_conv(uint64_t offset, ops::Rows in, ops::Vector kernel, ops::Rows out) override {
    inner_->causal_conv(offset, in, kernel, out);
  }
  void delta_rule(const ops::DeltaRule& d, ops::Rows qkv, ops::Rows alpha, ops::Rows beta,
                  ops::Rows out) override {
    inner_->delta_rule(d, qkv, alpha, beta, out);
  }
  void gated_norm(ops::Rows gate, ops::GateKind kind, ops::Vector g, float eps,
                  ops::Rows x) override {
    inner_->gated_norm(gate, kind, g, eps, x);
  }
  void moe(ops::Rows in, ops::Rows router, const ops::Experts& e, ops::Rows out) override {
    inner_->moe(in, router, e, out);
  }
  void add_gated(ops::Rows in, ops::Rows gate, ops::Rows x) override {
    inner_->add_gated(in, gate, x);
  }
  void ngram_prefetch(ops::NgramTable t) override { inner_->ngram_prefetch(t); }
  void ngram_embed(ops::NgramTable t, ops::Rows out) override { inner_->ngram_embed(t, out); }
  void ngram_mix(const ops::NgramMix& m, ops::Rows key, ops::Rows value, ops::Rows x) override {
    inner_->ngram_mix(m, key, value, x);
  }
  void index_append(const ops::IndexKeys& keys, ops::Rows k) override {
    inner_->index_append(keys, k);
  }
  void select_blocks(int32_t layer, ops::Rows q) override { inner_->select_blocks(layer, q); }
  void attend_selected(int32_t layer, ops::Rows q, int32_t n_heads, float scale,
                       ops::Rows out) override {
    inner_->attend_selected(layer, q, n_heads, scale, out);
  }
  std::vector<uint32_t> selected_positions(int32_t layer, uint32_t row) const override {
    return inner_->selected_positions(layer, row);
  }
  void put_embeddings(ops::Rows x) override { inner_->put_embeddings(x); }
  void add_bias(ops::Rows x, ops::Vector bias) override { inner_->add_bias(x, bias); }
  void layer_norm(ops::Rows x, ops::Vector bias, ops::Vector g, ops::Vector beta, float eps,
                  ops::Rows out) override {
    inner_->layer_norm(x, bias, g, beta, eps, out);
  }
  void gelu(ops::Rows x, ops::Vector bias, ops::Gelu kind) override { inner_->gelu(x, bias, kind); }
  void gated_feed_forward(ops::Rows in, ops::Weight gate, ops::Weight up, ops::Rows hidden,
                          ops::Rows hidden2, ops::Weight down, ops::Rows inout) override {
    inner_->gated_feed_forward(in, gate, up, hidden, hidden2, down, inout);
  }
  void feed_forward(ops::Rows in, ops::Weight up, ops::Vector bias, ops::Gelu kind,
                    ops::Rows hidden, ops::Weight down, ops::Rows inout) override {
    inner_->feed_forward(in, up, bias, kind, hidden, down, inout);
  }
  void attend_view(const ops::ViewAttention& a, ops::Rows q, ops::Rows k, ops::Rows v,
                   ops::Rows out) override {
    inner_->attend_view(a, q, k, v, out);
  }
  void project_attend_view(const ops::ViewAttention& a, ops::Rows in,
                           std::span<const ops::Weight, 3> weights, ops::Rows q, ops::Rows k,
                           ops::Rows v, ops::Rows out) override {
    inner_->project_attend_view(a, in, weights, q, k, v, out);
  }
  void join_rows(ops::Rows in, ops::Rows out) override { inner_->join_rows(in, out); }

 protected:
  std::unique_ptr<ops::Backend> inner_;
};

}  // namespace okibi::test
