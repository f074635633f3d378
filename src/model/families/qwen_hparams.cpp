#include "model/families/qwen_hparams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace okibi::model {
namespace {

constexpr int64_t kMaxHeads = 4096;
// What the kernels of the delta rule hold of a head.
constexpr int64_t kMaxDeltaDim = 256;
constexpr int32_t kMaxTaps = 16;

// One flag per layer of the file (all blocks or the trunk's), or one for all.
Result<std::vector<bool>> read_recurrent_layers(const gguf::File& file, const std::string& p,
                                                int32_t n_layers, int32_t n_trunk) {
  const auto n = static_cast<size_t>(n_trunk);
  const std::string key = p + "attention.recurrent_layers";
  if (!file.has(key)) {
    OKIBI_ASSIGN_OR_RETURN(const int64_t period, read_int_or(file, p + "full_attention_interval", 4,
                                                             1, std::max(n_layers, 4)));
    std::vector<bool> flags(n);
    for (size_t i = 0; i < n; ++i) flags[i] = (static_cast<int64_t>(i) + 1) % period != 0;
    return flags;
  }
  std::vector<bool> flags;
  if (file.find(key)->type == gguf::ValueType::kArray) {
    OKIBI_ASSIGN_OR_RETURN(flags, file.get_bools(key));
  } else {
    OKIBI_ASSIGN_OR_RETURN(const bool all, file.get_bool(key));
    flags.assign(n, all);
  }
  if (flags.size() != n && flags.size() != static_cast<size_t>(n_layers)) {
    return bad_data(fmt::format("{}: found {} entries, expected one per layer ({})", key,
                                flags.size(), n_layers));
  }
  flags.resize(n);
  return flags;
}

// Text has one position per token, so the three axes turn alike; what the file says is checked so
// that one who means something else hears of it.
Status check_rope_sections(const gguf::File& file, const std::string& p, int32_t n_rot) {
  const std::string key = p + "rope.dimension_sections";
  if (!file.has(key)) return bad_data(fmt::format("the key {} is missing", key));
  OKIBI_ASSIGN_OR_RETURN(const std::vector<int64_t> sections, file.get_ints(key));
  int64_t sum = 0;
  bool is_negative = false;
  for (int64_t s : sections) {
    is_negative |= s < 0 || s > n_rot;
    sum += s;
  }
  if (sections.size() < 3 || sections.size() > 4 || is_negative || sum != n_rot / 2) {
    return bad_data(fmt::format(
        "{}: found [{}], expected three or four numbers of pairs that add up to {}, half of the "
        "{} rotated values",
        key, fmt::join(sections, ", "), n_rot / 2, n_rot));
  }
  return ok_status();
}

Status read_delta_net(const gguf::File& file, const std::string& p, QwenHparams* q) {
  OKIBI_ASSIGN_OR_RETURN(const int64_t keys, read_int(file, p + "ssm.group_count", 1, kMaxHeads));
  OKIBI_ASSIGN_OR_RETURN(const int64_t values,
                         read_int(file, p + "ssm.time_step_rank", 1, kMaxHeads));
  OKIBI_ASSIGN_OR_RETURN(const int64_t dim, read_int(file, p + "ssm.state_size", 1, kMaxDeltaDim));
  OKIBI_ASSIGN_OR_RETURN(const int64_t inner,
                         read_int(file, p + "ssm.inner_size", 1, kMaxHeads * kMaxDeltaDim));
  OKIBI_ASSIGN_OR_RETURN(const int64_t taps, read_int(file, p + "ssm.conv_kernel", 2, kMaxTaps));
  if (values % keys != 0) {
    return bad_data(
        fmt::format("{}ssm.time_step_rank: found {} value heads, which {} key heads do "
                    "not divide",
                    p, values, keys));
  }
  if (inner != values * dim) {
    return bad_data(fmt::format("{}ssm.inner_size: found {}, expected {} heads of {} values ({})",
                                p, inner, values, dim, values * dim));
  }
  q->n_key_heads = static_cast<int32_t>(keys);
  q->n_value_heads = static_cast<int32_t>(values);
  q->delta_dim = static_cast<int32_t>(dim);
  q->n_taps = static_cast<int32_t>(taps);
  return ok_status();
}

// Heads may be given per layer; layers without attention do not count.
Status read_heads(const std::string& p, QwenHparams* q) {
  for (int32_t i = 0; i < q->n_trunk; ++i) {
    const auto at = static_cast<size_t>(i);
    if (q->is_recurrent[at]) continue;
    if (q->h.n_kv_heads[at] < 1) {
      return bad_data(fmt::format(
          "{}attention.head_count_kv: layer {} attends and has {} heads, expected at least 1", p, i,
          q->h.n_kv_heads[at]));
    }
    if (q->n_heads == 0) {
      q->n_heads = q->h.n_heads[at];
      q->n_kv_heads = q->h.n_kv_heads[at];
    }
    if (q->h.n_heads[at] != q->n_heads || q->h.n_kv_heads[at] != q->n_kv_heads) {
      return unsupported(fmt::format(
          "{}attention.head_count: layer {} has {} query and {} K/V heads, an attention layer "
          "before it {} and {}",
          p, i, q->h.n_heads[at], q->h.n_kv_heads[at], q->n_heads, q->n_kv_heads));
    }
  }
  return ok_status();
}

}  // namespace

Result<QwenHparams> read_qwen_hparams(const gguf::File& file) {
  QwenHparams q;
  OKIBI_ASSIGN_OR_RETURN(q.h, read_hparams(file));
  Hparams& h = q.h;
  const std::string p = h.arch + ".";
  OKIBI_ASSIGN_OR_RETURN(const int64_t n_next,
                         read_int_or(file, p + "nextn_predict_layers", 0, 0, h.n_layers - 1));
  q.n_trunk = h.n_layers - static_cast<int32_t>(n_next);
  OKIBI_ASSIGN_OR_RETURN(q.is_recurrent, read_recurrent_layers(file, p, h.n_layers, q.n_trunk));
  OKIBI_RETURN_IF_ERROR(read_delta_net(file, p, &q));
  OKIBI_RETURN_IF_ERROR(read_heads(p, &q));
  for (const char* key : {"attention.head_count_kv", "attention.key_length",
                          "attention.value_length", "rope.dimension_count", "rope.freq_base"}) {
    if (!file.has(p + key)) return bad_data(fmt::format("the key {}{} is missing", p, key));
  }
  if (h.n_rot % 2 != 0 || h.n_rot > h.k_dim) {
    return bad_data(fmt::format(
        "{}rope.dimension_count: found {}, expected an even number up to the head's {} values", p,
        h.n_rot, h.k_dim));
  }
  OKIBI_RETURN_IF_ERROR(check_rope_sections(file, p, h.n_rot));
  OKIBI_ASSIGN_OR_RETURN(q.attention_scale, file.get_f32_or(p + "attention.scale", 0.0f));
  if (q.attention_scale == 0.0f) {
    q.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.k_dim)));
  }
  return q;
}

}  // namespace okibi::model
