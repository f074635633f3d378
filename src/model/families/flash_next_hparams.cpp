// Hyper-parameters that only qwen4exp has: streams, experts, index, n-grams.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/qwen_hparams.h"

namespace okibi::model {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxExperts = 4096;
// What the kernels take: files beyond are refused here and not by a check while they run.
constexpr int64_t kMaxStreams = 16, kMaxExpertsUsed = 64, kMaxIndexDim = 512;
// A block of positions must not cross a page of the K/V cache.
constexpr int64_t kMaxBlockTokens = 64;

Status read_streams(const gguf::File& file, const std::string& p, FlashNextHparams* f) {
  OKIBI_ASSIGN_OR_RETURN(const int64_t n,
                         read_int(file, p + "hyper_connection.count", 2, kMaxStreams));
  f->n_streams = static_cast<int32_t>(n);
  OKIBI_ASSIGN_OR_RETURN(f->low_rank,
                         read_int(file, p + "hyper_connection.low_rank", 1, kMaxWidth));
  return ok_status();
}

Status read_experts(const gguf::File& file, const std::string& p, FlashNextHparams* f) {
  const Hparams& h = f->q.h;
  OKIBI_ASSIGN_OR_RETURN(f->n_experts, read_int(file, p + "expert_count", 1, kMaxExperts));
  OKIBI_ASSIGN_OR_RETURN(f->n_experts_used, read_int(file, p + "expert_used_count", 1,
                                                     std::min(f->n_experts, kMaxExpertsUsed)));
  const int64_t d_ff = h.d_ff[0];
  OKIBI_ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                         read_per_layer(file, p + "expert_feed_forward_length", h.n_layers,
                                        d_ff / f->n_experts_used, 1, kMaxWidth));
  f->d_expert = widths[0];
  if (f->d_expert < 1) {
    return bad_data(fmt::format("the key {}expert_feed_forward_length is missing", p));
  }
  for (int32_t i = 0; i < h.n_layers; ++i) {
    const int64_t width = widths[static_cast<size_t>(i)];
    if (width != f->d_expert) {
      return unsupported(fmt::format(
          "{}expert_feed_forward_length: layer {} has {}, layer 0 has {}; expected one width", p, i,
          width, f->d_expert));
    }
  }
  OKIBI_ASSIGN_OR_RETURN(
      f->d_shared, read_int_or(file, p + "expert_shared_feed_forward_length", d_ff, 1, kMaxWidth));
  if (f->d_shared < 1) {
    return bad_data(
        fmt::format("the keys {0}expert_shared_feed_forward_length and "
                    "{0}feed_forward_length are missing; expected one of them",
                    p));
  }
  OKIBI_ASSIGN_OR_RETURN(f->expert_scale, file.get_f32_or(p + "expert_weights_scale", 1.0f));
  if (f->expert_scale == 0.0f) f->expert_scale = 1.0f;
  return ok_status();
}

// The block size of every attention layer; 0 where the file has none.
Result<int64_t> read_block_tokens(const gguf::File& file, const std::string& p,
                                  const QwenHparams& q) {
  const std::string key = p + "attention.compress_ratios";
  if (!file.has(key)) return 0;
  OKIBI_ASSIGN_OR_RETURN(const std::vector<int64_t> ratios, file.get_ints(key));
  if (ratios.size() != static_cast<size_t>(q.h.n_layers)) {
    return bad_data(fmt::format("{}: found {} entries, expected one per layer ({})", key,
                                ratios.size(), q.h.n_layers));
  }
  int64_t shared = -1;
  for (int32_t i = 0; i < q.n_trunk; ++i) {
    const int64_t ratio = ratios[static_cast<size_t>(i)];
    if (q.is_recurrent[static_cast<size_t>(i)]) {
      if (ratio == 0) continue;
      return bad_data(
          fmt::format("{}: layer {} is recurrent and has {}, expected 0", key, i, ratio));
    }
    if (shared < 0) shared = ratio;
    if (ratio != shared) {
      return unsupported(
          fmt::format("{}: layer {} has {}, an attention layer before it {}; "
                      "expected the same for all",
                      key, i, ratio, shared));
    }
    if (ratio != 0 && (ratio < 2 || kMaxBlockTokens % ratio != 0)) {
      return unsupported(
          fmt::format("{}: layer {} has {}, expected 0 (dense) or a power of two from 2 to {}", key,
                      i, ratio, kMaxBlockTokens));
    }
  }
  return std::max<int64_t>(shared, 0);
}

Status read_index(const gguf::File& file, const std::string& p, FlashNextHparams* f) {
  OKIBI_ASSIGN_OR_RETURN(const int64_t block, read_block_tokens(file, p, f->q));
  OKIBI_ASSIGN_OR_RETURN(const int64_t heads,
                         read_int(file, p + "attention.indexer.head_count", 1, 64));
  OKIBI_ASSIGN_OR_RETURN(const int64_t dim,
                         read_int(file, p + "attention.indexer.key_length", 1, 4096));
  OKIBI_ASSIGN_OR_RETURN(const int64_t budget,
                         read_int(file, p + "attention.indexer.top_k", 1, 1 << 20));
  if (dim % 16 != 0 || dim > kMaxIndexDim) {
    return unsupported(
        fmt::format("{}attention.indexer.key_length: found {}, expected a multiple of 16 up to {}",
                    p, dim, kMaxIndexDim));
  }
  if (f->q.h.n_rot > dim) {
    return bad_data(
        fmt::format("{}attention.indexer.key_length: found {}, expected at least the "
                    "{} rotated values",
                    p, dim, f->q.h.n_rot));
  }
  f->n_index_heads = static_cast<int32_t>(heads);
  if (block == 0) return ok_status();
  if (budget % block != 0) {
    return bad_data(
        fmt::format("{}attention.indexer.top_k: found {} tokens, expected a multiple "
                    "of the block's {}",
                    p, budget, block));
  }
  f->index = {.dim = static_cast<int32_t>(dim),
              .block_tokens = static_cast<int32_t>(block),
              .budget = static_cast<int32_t>(budget)};
  return ok_status();
}

Status read_ngram_arrays(const gguf::File& file, const std::string& p, NgramHparams* n) {
  OKIBI_ASSIGN_OR_RETURN(n->multipliers, file.get_u64s(p + "ple.layer_multipliers"));
  OKIBI_ASSIGN_OR_RETURN(n->vocab_sizes, file.get_u64s(p + "ple.head_vocab_sizes"));
  OKIBI_ASSIGN_OR_RETURN(n->offsets, file.get_u64s(p + "ple.head_offsets"));
  const auto n_multipliers = static_cast<size_t>(n->n_orders) + 1;
  // A missing multiplier would silently drop a term of the hash.
  if (n->multipliers.size() < n_multipliers) {
    return bad_data(fmt::format("{}ple.layer_multipliers: found {} entries, expected {}", p,
                                n->multipliers.size(), n_multipliers));
  }
  n->multipliers.resize(n_multipliers);
  for (const auto& [key, values] : {std::pair{"ple.head_vocab_sizes", &n->vocab_sizes},
                                    std::pair{"ple.head_offsets", &n->offsets}}) {
    if (values->size() != static_cast<size_t>(n->n_heads())) {
      return bad_data(fmt::format("{}{}: found {} entries, expected one for each of {} heads", p,
                                  key, values->size(), n->n_heads()));
    }
  }
  for (size_t i = 0; i < n->vocab_sizes.size(); ++i) {
    const uint64_t size = n->vocab_sizes[i], offset = n->offsets[i];
    if (size < 1) {
      return bad_data(
          fmt::format("{}ple.head_vocab_sizes: head {} has 0 rows, expected at least 1", p, i));
    }
    if (size > INT32_MAX || offset > INT32_MAX || offset + size > INT32_MAX) {
      return bad_data(
          fmt::format("{}ple.head_vocab_sizes: head {} has rows {} to {}, expected "
                      "them below 2147483647",
                      p, i, offset, offset + size));
    }
  }
  return ok_status();
}

Status read_ngram(const gguf::File& file, const std::string& p, FlashNextHparams* f) {
  if (!file.has(p + "ple.layers")) return ok_status();
  OKIBI_ASSIGN_OR_RETURN(const std::vector<int64_t> layers, file.get_ints(p + "ple.layers"));
  if (layers.empty()) return ok_status();
  if (layers.size() > 1) {
    return unsupported(
        fmt::format("{}ple.layers: found {} entries, expected at most one", p, layers.size()));
  }
  const int64_t layer = layers[0];
  if (layer < 0 || layer >= f->q.n_trunk || !f->q.is_recurrent[static_cast<size_t>(layer)]) {
    return bad_data(fmt::format("{}ple.layers: found {}, expected a recurrent layer from 0 to {}",
                                p, layer, f->q.n_trunk - 1));
  }
  NgramHparams& n = f->ngram;
  n.layer = static_cast<int32_t>(layer);
  OKIBI_ASSIGN_OR_RETURN(const int64_t size, read_int(file, p + "ple.ngram_size", 2, 8));
  OKIBI_ASSIGN_OR_RETURN(const int64_t heads, read_int(file, p + "ple.heads_per_ngram", 1, 64));
  OKIBI_ASSIGN_OR_RETURN(const int64_t taps, read_int(file, p + "ple.conv_kernel", 2, 16));
  OKIBI_ASSIGN_OR_RETURN(n.row_width,
                         read_int(file, p + "embedding_length_per_layer_input", 1, kMaxWidth));
  const int64_t last_id = f->q.h.n_vocab - 1;
  OKIBI_ASSIGN_OR_RETURN(const int64_t reset, read_int(file, p + "ple.eos_token_id", 0, last_id));
  // The stand-in for pictures; checked, used once this family sees.
  OKIBI_RETURN_IF_ERROR(read_int_or(file, p + "ple.image_token_id", reset, 0, last_id).status());
  n.n_orders = static_cast<int32_t>(size) - 1;
  n.heads_per_order = static_cast<int32_t>(heads);
  n.n_taps = static_cast<int32_t>(taps);
  n.dilation = static_cast<int32_t>(size);
  n.reset_token = static_cast<int32_t>(reset);
  return read_ngram_arrays(file, p, &n);
}

}  // namespace

Result<FlashNextHparams> read_flash_next_hparams(const gguf::File& file) {
  FlashNextHparams f;
  OKIBI_ASSIGN_OR_RETURN(f.q, read_qwen_hparams(file));
  const std::string p = f.q.h.arch + ".";
  OKIBI_RETURN_IF_ERROR(read_streams(file, p, &f));
  OKIBI_RETURN_IF_ERROR(read_experts(file, p, &f));
  OKIBI_RETURN_IF_ERROR(read_index(file, p, &f));
  OKIBI_RETURN_IF_ERROR(read_ngram(file, p, &f));
  return f;
}

}  // namespace okibi::model
