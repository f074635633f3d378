#include "model/families/flash_next_parts.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked_math.h"

namespace okibi::model {

Result<HyperConnection> load_hyper_connection(WeightLoader& loader, const std::string& stem,
                                              const FlashNextHparams& f, bool injects) {
  const int64_t width = f.n_streams * f.q.h.d_model;
  HyperConnection hc;
  OKIBI_ASSIGN_OR_RETURN(hc.norm, loader.vector(stem + "_norm.weight", width));
  OKIBI_ASSIGN_OR_RETURN(hc.down, loader.matrix(stem + "_down", width, f.low_rank));
  OKIBI_ASSIGN_OR_RETURN(hc.up, loader.matrix(stem + "_up", f.low_rank, width));
  if (injects) {
    OKIBI_ASSIGN_OR_RETURN(hc.inject, loader.matrix(stem + "_inject", width, f.n_streams));
  }
  return hc;
}

void run_hyper_connection(ops::Backend& b, const HyperConnection& hc, int32_t n_streams, float eps,
                          ops::Rows streams, const StreamRows& rows, ops::Rows out) {
  b.rms_norm_groups(streams, hc.norm, n_streams, eps, rows.normed);
  const ops::Weight weights[] = {hc.down, hc.inject};
  const ops::Rows outs[] = {rows.low, rows.strength};
  const size_t n = hc.inject.valid() ? 2 : 1;
  b.project(rows.normed, {weights, n}, {outs, n});
  b.silu(rows.low, 1.0f / static_cast<float>(n_streams));
  b.project(rows.low, {&hc.up, 1}, {&rows.mix, 1});
  b.mix_streams(rows.normed, rows.mix, out);
}

Result<ExpertLayer> load_expert_layer(WeightLoader& loader, const std::string& prefix,
                                      const FlashNextHparams& f) {
  const int64_t d = f.q.h.d_model;
  ExpertLayer e;
  OKIBI_ASSIGN_OR_RETURN(e.router, loader.matrix(prefix + "ffn_gate_inp", d, f.n_experts));
  if (loader.has(prefix + "ffn_gate_up_exps.weight")) {
    WeightLoader::Interleaved rows = {.n_rows = f.n_experts * 2 * f.d_expert,
                                      .period = 2 * f.d_expert,
                                      .first = 0,
                                      .n_out = f.d_expert,
                                      .n_used = f.n_experts_used};
    OKIBI_ASSIGN_OR_RETURN(e.experts.gate,
                           loader.interleaved(prefix + "ffn_gate_up_exps", d, rows));
    rows.first = f.d_expert;
    OKIBI_ASSIGN_OR_RETURN(e.experts.up, loader.interleaved(prefix + "ffn_gate_up_exps", d, rows));
  } else {
    OKIBI_ASSIGN_OR_RETURN(e.experts.gate, loader.experts(prefix + "ffn_gate_exps", d, f.d_expert,
                                                          f.n_experts, f.n_experts_used));
    OKIBI_ASSIGN_OR_RETURN(e.experts.up, loader.experts(prefix + "ffn_up_exps", d, f.d_expert,
                                                        f.n_experts, f.n_experts_used));
  }
  OKIBI_ASSIGN_OR_RETURN(e.experts.down, loader.experts(prefix + "ffn_down_exps", f.d_expert, d,
                                                        f.n_experts, f.n_experts_used));
  e.experts.n_used = static_cast<int32_t>(f.n_experts_used);
  e.experts.scale = f.expert_scale;
  OKIBI_ASSIGN_OR_RETURN(e.shared_strength, loader.matrix(prefix + "ffn_gate_inp_shexp", d, 1));
  OKIBI_ASSIGN_OR_RETURN(e.shared_gate, loader.matrix(prefix + "ffn_gate_shexp", d, f.d_shared));
  OKIBI_ASSIGN_OR_RETURN(e.shared_up, loader.matrix(prefix + "ffn_up_shexp", d, f.d_shared));
  OKIBI_ASSIGN_OR_RETURN(e.shared_down, loader.matrix(prefix + "ffn_down_shexp", f.d_shared, d));
  return e;
}

void run_expert_layer(ops::Backend& b, const ExpertLayer& e, const ExpertRows& rows, ops::Rows in,
                      ops::Rows out) {
  const ops::Weight weights[] = {e.router, e.shared_strength, e.shared_gate, e.shared_up};
  const ops::Rows outs[] = {rows.router, rows.strength, rows.gate, rows.up};
  b.project(in, weights, outs);
  b.moe(in, rows.router, e.experts, out);
  b.silu_mul(rows.gate, rows.up, rows.gate);
  b.project(rows.gate, {&e.shared_down, 1}, {&rows.shared, 1});
  b.add_gated(rows.shared, rows.strength, out);
}

namespace {

constexpr const char* kJoinedTable = "per_layer_token_embd.weight";

Status check_table(const gguf::TensorInfo& info, const NgramHparams& n, uint64_t n_rows) {
  if (info.ne[0] == static_cast<uint64_t>(n.row_width) && info.n_rows() >= n_rows) {
    return ok_status();
  }
  return bad_data(fmt::format("{}: expected rows of {} values and at least {} of them, found {}",
                              info.name, n.row_width, n_rows, gguf::shape_text(info)));
}

// The heads' rows, in one tensor or in one of their own each.
Result<ops::NgramTableSource> find_table(const WeightLoader& loader, const NgramHparams& n) {
  const gguf::File& file = loader.file();
  ops::NgramTableSource source;
  const gguf::TensorInfo* joined = file.find_tensor(kJoinedTable);
  for (size_t i = 0; i < n.vocab_sizes.size(); ++i) {
    const std::string own = fmt::format("ple_ngram_embd.{}.weight", i);
    const gguf::TensorInfo* info = joined != nullptr ? joined : file.find_tensor(own);
    if (info == nullptr) {
      return bad_data(
          fmt::format("the tensors {} and {} are missing; expected the n-gram table as "
                      "one tensor or as one for each of {} heads",
                      kJoinedTable, own, n.n_heads()));
    }
    const uint64_t first = joined != nullptr ? n.offsets[i] : 0;
    OKIBI_RETURN_IF_ERROR(check_table(*info, n, first + n.vocab_sizes[i]));
    if (i > 0 && info->type != source.type) {
      return unsupported(fmt::format("{}: found {}, the heads before it are {}", own,
                                     name_of(info->type), name_of(source.type)));
    }
    if (!traits_of(info->type).is_weight) {
      return bad_data(fmt::format("{}: {} is not a weight type", info->name, name_of(info->type)));
    }
    source.type = info->type;
    const uint8_t* rows = file.data(*info).data() + first * row_bytes(info->type, info->ne[0]);
    source.heads.push_back({rows, n.vocab_sizes[i]});
  }
  source.row_width = n.row_width;
  source.heads_per_order = n.heads_per_order;
  source.reset_token = n.reset_token;
  source.multipliers = n.multipliers;
  return source;
}

}  // namespace

Result<NgramLayer> load_ngram_layer(WeightLoader& loader, const FlashNextHparams& f,
                                    ModelFacts* facts) {
  const NgramHparams& n = f.ngram;
  const std::string prefix = fmt::format("blk.{}.", n.layer);
  const int64_t d = f.q.h.d_model, width = f.n_streams * d;
  const int64_t gathered = n.n_heads() * n.row_width;
  NgramLayer layer;
  OKIBI_ASSIGN_OR_RETURN(ops::NgramTableSource source, find_table(loader, n));
  OKIBI_ASSIGN_OR_RETURN(layer.table, loader.ngram_table(std::move(source)));
  OKIBI_ASSIGN_OR_RETURN(layer.key, loader.matrix(prefix + "ple_key", gathered, width));
  OKIBI_ASSIGN_OR_RETURN(layer.value, loader.matrix(prefix + "ple_value", gathered, d));
  ops::NgramMix& mix = layer.mix;
  OKIBI_ASSIGN_OR_RETURN(mix.key_norm, loader.vector(prefix + "ple_norm_key.weight", width));
  OKIBI_ASSIGN_OR_RETURN(mix.query_norm, loader.vector(prefix + "ple_norm_query.weight", width));
  OKIBI_ASSIGN_OR_RETURN(mix.conv_norm, loader.vector(prefix + "ple_norm_conv.weight", width));
  OKIBI_ASSIGN_OR_RETURN(mix.kernel, loader.vector(prefix + "ple_conv1d.weight", n.n_taps * width));
  mix.n_streams = f.n_streams;
  mix.n_taps = n.n_taps;
  mix.dilation = n.dilation;
  mix.eps = f.q.h.norm_eps;
  mix.state_offset = align_up(facts->state_floats, 16);
  facts->state_floats =
      mix.state_offset + static_cast<uint64_t>((n.n_taps - 1) * n.dilation * width);
  return layer;
}

Status check_next_token_blocks(const WeightLoader& loader, const FlashNextHparams& f) {
  const Hparams& h = f.q.h;
  const int64_t d = h.d_model, width = f.n_streams * d;
  const int64_t kv = int64_t{f.q.n_kv_heads} * h.k_dim;
  const int64_t heads = f.q.n_heads;
  struct Shape {
    const char* name;
    int64_t n_in, n_rows;
  };
  const Shape shapes[] = {{"nextn.enorm", d, 1},
                          {"nextn.hnorm", width, 1},
                          {"nextn.eh_proj", 2 * d, d},
                          {"nextn.hc_head_norm", width, 1},
                          {"nextn.hc_head_down", width, f.low_rank},
                          {"nextn.hc_head_up", f.low_rank, width},
                          {"attn_q", d, heads * (h.k_dim + h.v_dim)},
                          {"attn_k", d, kv},
                          {"attn_output", heads * h.v_dim, d},
                          {"ffn_gate_inp", d, f.n_experts}};
  for (int32_t i = f.q.n_trunk; i < h.n_layers; ++i) {
    for (const Shape& s : shapes) {
      const std::string name = fmt::format("blk.{}.{}.weight", i, s.name);
      // Files of the trunk alone may still count the block.
      if (!loader.has(name)) continue;
      // Gammas of all streams come as one row or as one for each stream.
      const gguf::TensorInfo& info = *loader.file().find_tensor(name);
      const bool is_gamma = s.n_rows == 1 && info.n_elements() == static_cast<uint64_t>(s.n_in);
      if (!is_gamma) OKIBI_RETURN_IF_ERROR(loader.expect(name, s.n_in, s.n_rows));
    }
  }
  return ok_status();
}

void run_ngram_layer(ops::Backend& b, const NgramLayer& n, const NgramRows& rows,
                     ops::Rows streams) {
  b.ngram_embed(n.table, rows.gathered);
  const ops::Weight weights[] = {n.key, n.value};
  const ops::Rows outs[] = {rows.key, rows.value};
  b.project(rows.gathered, weights, outs);
  b.ngram_mix(n.mix, rows.key, rows.value, streams);
}

}  // namespace okibi::model
