#include "model/hparams.h"

#include <fmt/format.h>

#include <algorithm>

namespace okibi::model {
namespace {

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxContext = int64_t{1} << 30;

std::vector<int32_t> narrow(const std::vector<int64_t>& values) {
  return std::vector<int32_t>(values.begin(), values.end());
}

Status check_heads(const Hparams& h) {
  for (int32_t i = 0; i < h.n_layers; ++i) {
    const int32_t q = h.n_heads[i], kv = h.n_kv_heads[i];
    if (kv > 0 && (q <= 0 || q % kv != 0)) {
      return bad_data(fmt::format(
          "{}.attention.head_count: layer {} has {} query heads, which {} K/V heads do not divide",
          h.arch, i, q, kv));
    }
  }
  return ok_status();
}

}  // namespace

Result<int64_t> read_int(const gguf::File& file, const std::string& key, int64_t min, int64_t max) {
  OKIBI_ASSIGN_OR_RETURN(uint64_t value, file.get_u64(key));
  if (value > static_cast<uint64_t>(max) || static_cast<int64_t>(value) < min) {
    return bad_data(fmt::format("{}: found {}, expected {} to {}", key, value, min, max));
  }
  return static_cast<int64_t>(value);
}

Result<int64_t> read_int_or(const gguf::File& file, const std::string& key, int64_t fallback,
                            int64_t min, int64_t max) {
  if (!file.has(key)) return fallback;
  return read_int(file, key, min, max);
}

Result<std::vector<int64_t>> read_per_layer(const gguf::File& file, const std::string& key,
                                            int32_t n_layers, int64_t fallback, int64_t min,
                                            int64_t max) {
  const size_t n = static_cast<size_t>(n_layers);
  if (!file.has(key)) return std::vector<int64_t>(n, fallback);
  OKIBI_ASSIGN_OR_RETURN(std::vector<int64_t> values, file.get_ints(key));
  if (file.find(key)->type != gguf::ValueType::kArray) values.assign(n, values[0]);
  if (values.size() != n) {
    return bad_data(fmt::format("{}: found {} entries, expected one per layer ({})", key,
                                values.size(), n_layers));
  }
  for (int64_t v : values) {
    if (v < min || v > max) {
      return bad_data(fmt::format("{}: found {}, expected {} to {}", key, v, min, max));
    }
  }
  return values;
}

Result<Hparams> read_hparams(const gguf::File& file) {
  Hparams h;
  OKIBI_ASSIGN_OR_RETURN(std::string_view arch, file.get_string("general.architecture"));
  h.arch = std::string(arch);
  OKIBI_ASSIGN_OR_RETURN(std::string_view name, file.get_string_or("general.name", ""));
  h.name = std::string(name);
  const std::string p = h.arch + ".";
  OKIBI_ASSIGN_OR_RETURN(int64_t n_layers, read_int(file, p + "block_count", 1, kMaxLayers));
  h.n_layers = static_cast<int32_t>(n_layers);
  OKIBI_ASSIGN_OR_RETURN(h.d_model, read_int(file, p + "embedding_length", 1, kMaxWidth));
  OKIBI_ASSIGN_OR_RETURN(h.n_ctx_trained, read_int(file, p + "context_length", 1, kMaxContext));
  OKIBI_ASSIGN_OR_RETURN(h.norm_eps, file.get_f32(p + "attention.layer_norm_rms_epsilon"));
  if (!(h.norm_eps > 0.0f)) {
    return bad_data(
        fmt::format("{}attention.layer_norm_rms_epsilon: found {}, expected a positive "
                    "number",
                    p, h.norm_eps));
  }
  OKIBI_ASSIGN_OR_RETURN(h.rope_freq_base, file.get_f32_or(p + "rope.freq_base", 10000.0f));
  if (!(h.rope_freq_base > 0.0f)) {
    return bad_data(
        fmt::format("{}rope.freq_base: found {}, expected a positive number", p, h.rope_freq_base));
  }
  if (!file.has(p + "attention.head_count")) {
    return bad_data(fmt::format("the key {}attention.head_count is missing", p));
  }
  OKIBI_ASSIGN_OR_RETURN(
      auto heads, read_per_layer(file, p + "attention.head_count", h.n_layers, 0, 0, kMaxHeads));
  h.n_heads = narrow(heads);
  if (*std::max_element(h.n_heads.begin(), h.n_heads.end()) < 1) {
    return bad_data(p + "attention.head_count: no layer has a head");
  }
  h.n_kv_heads = h.n_heads;
  if (file.has(p + "attention.head_count_kv")) {
    OKIBI_ASSIGN_OR_RETURN(
        auto kv, read_per_layer(file, p + "attention.head_count_kv", h.n_layers, 0, 0, kMaxHeads));
    h.n_kv_heads = narrow(kv);
  }
  OKIBI_RETURN_IF_ERROR(check_heads(h));
  OKIBI_ASSIGN_OR_RETURN(
      h.d_ff, read_per_layer(file, p + "feed_forward_length", h.n_layers, 0, 0, kMaxWidth));
  OKIBI_ASSIGN_OR_RETURN(int64_t k, read_int_or(file, p + "attention.key_length", 0, 1, 65536));
  OKIBI_ASSIGN_OR_RETURN(int64_t v, read_int_or(file, p + "attention.value_length", 0, 1, 65536));
  OKIBI_ASSIGN_OR_RETURN(int64_t rot, read_int_or(file, p + "rope.dimension_count", 0, 1, 65536));
  h.k_dim = static_cast<int32_t>(k);
  h.v_dim = static_cast<int32_t>(v);
  h.n_rot = static_cast<int32_t>(rot);
  const gguf::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) return bad_data("the tensor token_embd.weight is missing");
  if (embedding->n_rows() < 1 || embedding->n_rows() > (uint64_t{1} << 22)) {
    return bad_data(fmt::format("token_embd.weight: found {} rows, expected 1 to 4194304",
                                embedding->n_rows()));
  }
  h.n_vocab = static_cast<int64_t>(embedding->n_rows());
  return h;
}

}  // namespace okibi::model
