#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "platform/file_map.h"

namespace okibi {

std::string MemoryPlan::table() const {
  std::string out;
  const auto line = [&](std::string_view name, uint64_t bytes) {
    out += fmt::format("  {:<44} {:>12.1f} MiB\n", name, static_cast<double>(bytes) / (1 << 20));
  };
  for (const Row& row : rows) line(row.name, row.bytes);
  line("needed", needed_bytes);
  line("available", available_bytes);
  return out;
}

namespace engine {
namespace {

constexpr int32_t kPageTokens = 64;
constexpr uint32_t kMaxSlots = 256;
constexpr uint64_t kSlotBudgetBytes = uint64_t{1} << 30;
constexpr uint64_t kLogitsBudgetBytes = uint64_t{64} << 20;
constexpr uint32_t kMaxOutputs = 64;
// Pages beyond what sessions of full length need: the open pages of forks and of questions.
constexpr uint32_t kForkPages = 128;

ops::KvType stored_type(KvCacheType type) {
  switch (type) {
    case KvCacheType::kF32:
      return ops::KvType::kF32;
    case KvCacheType::kF16:
      return ops::KvType::kF16;
    case KvCacheType::kQ8_0:
      return ops::KvType::kQ8_0;
  }
  return ops::KvType::kF16;
}

}  // namespace

Result<SizedPlan> plan_memory(const EngineOptions& options, const model::Model& model,
                              uint64_t packed_weight_bytes,
                              const std::vector<MemoryPlan::Row>& others) {
  const model::ModelFacts& facts = model.facts();
  SizedPlan result;
  Core::Sizes& sizes = result.sizes;
  MemoryPlan& plan = result.plan;
  if (options.max_batch_rows < 1 || options.max_batch_rows > 8192) {
    return invalid_argument(
        fmt::format("batch of {} tokens: expected 1 to 8192", options.max_batch_rows));
  }
  if (options.n_sessions < 1 || options.n_sessions > 1024) {
    return invalid_argument(fmt::format("{} sessions: expected 1 to 1024", options.n_sessions));
  }
  if (options.n_ctx > facts.n_ctx_trained) {
    return invalid_argument(fmt::format("context of {} tokens: the model was made for {}",
                                        options.n_ctx, facts.n_ctx_trained));
  }
  sizes.kv_type = stored_type(options.kv_type);
  if (sizes.kv_type == ops::KvType::kQ8_0) {
    for (const ops::KvLayerShape& layer : facts.kv_layers) {
      if (layer.k_dim % 32 != 0 || layer.v_dim % 32 != 0) {
        return invalid_argument(fmt::format(
            "K/V type q8_0: needs heads of a multiple of 32 values, the model has {} and {}",
            layer.k_dim, layer.v_dim));
      }
    }
  }
  sizes.page_tokens = kPageTokens;
  sizes.sparse = {.keep_pooled = options.sparse.keep_pooled,
                  .attend_selected = options.sparse.attend_selected,
                  .select_blocks = options.sparse.select_blocks};
  sizes.max_batch_rows = options.max_batch_rows;
  const uint64_t row = static_cast<uint64_t>(facts.n_vocab) * sizeof(float);
  sizes.max_outputs = static_cast<uint32_t>(std::clamp<uint64_t>(
      kLogitsBudgetBytes / row, 1, std::min(kMaxOutputs, options.max_batch_rows)));

  const uint64_t slot_bytes = facts.state_floats * sizeof(float);
  sizes.n_slots = slot_bytes == 0
                      ? 2
                      : static_cast<uint32_t>(std::clamp<uint64_t>(
                            kSlotBudgetBytes / slot_bytes, options.n_sessions + 3, kMaxSlots));
  const uint64_t state_bytes = slot_bytes * sizes.n_slots;
  const uint64_t activation_bytes = model.activation_bytes(sizes.max_batch_rows, sizes.max_outputs);
  plan.available_bytes =
      options.memory_limit_bytes > 0 ? options.memory_limit_bytes : available_memory_bytes();

  const uint64_t page_bytes = ops::kv_page_bytes(sizes.kv_config(facts));
  const auto pages_for = [&](uint64_t n_ctx) {
    return options.n_sessions * static_cast<uint64_t>(ceil_div(n_ctx, kPageTokens)) + kForkPages;
  };
  sizes.n_ctx = options.n_ctx;
  if (sizes.n_ctx == 0) {
    // As long as the model was made for, halved until the cache takes at most half of what is left.
    uint64_t fixed = packed_weight_bytes + state_bytes + activation_bytes;
    for (const MemoryPlan::Row& other : others) fixed += other.bytes;
    const uint64_t left = plan.available_bytes > fixed ? plan.available_bytes - fixed : 0;
    uint64_t n_ctx = static_cast<uint64_t>(facts.n_ctx_trained);
    while (n_ctx > 512 && pages_for(n_ctx) * page_bytes > left / 2) n_ctx /= 2;
    sizes.n_ctx = static_cast<uint32_t>(n_ctx);
  }
  const uint64_t n_pages = pages_for(sizes.n_ctx);
  if (n_pages > UINT32_MAX) {
    return invalid_argument(fmt::format("context of {} tokens for {} sessions: too many pages",
                                        sizes.n_ctx, options.n_sessions));
  }
  sizes.n_pages = facts.kv_layers.empty() ? 1 : static_cast<uint32_t>(n_pages);
  sizes.state_cache_bytes = static_cast<uint64_t>(options.state_cache_mib) << 20;

  plan.n_ctx = sizes.n_ctx;
  plan.rows = {
      {"weights, packed", packed_weight_bytes},
      {fmt::format("K/V cache, {} sessions of {} tokens, {}", options.n_sessions, sizes.n_ctx,
                   ops::kv_type_name(sizes.kv_type)),
       page_bytes * sizes.n_pages},
      {fmt::format("recurrent state, {} slots", sizes.n_slots), state_bytes},
      {fmt::format("activations, {} tokens per step", sizes.max_batch_rows), activation_bytes},
  };
  plan.rows.insert(plan.rows.end(), others.begin(), others.end());
  for (const MemoryPlan::Row& r : plan.rows) plan.needed_bytes += r.bytes;
  return result;
}

}  // namespace engine
}  // namespace okibi
