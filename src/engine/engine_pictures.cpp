// The picture functions of Engine: they check that there is a vision side and pass on.
#include "engine/engine_state.h"
#include "okibi/engine.h"

namespace okibi {
namespace {

Status no_vision() {
  return unsupported(
      "the engine was opened without a vision file (mmproj), so it takes no pictures");
}

VisionCacheStats::Level to_stats(const reuse::VisionCounters& c) {
  return {.hits = c.hits,
          .misses = c.misses,
          .joined = c.joined,
          .failures = c.failures,
          .evictions = c.evictions,
          .not_stored = c.not_stored,
          .entries = c.entries,
          .bytes = c.bytes};
}

}  // namespace

bool Engine::has_vision() const {
  return state_->vision != nullptr;
}
const VisionInfo& Engine::vision_info() const {
  return state_->vision_info;
}

Result<Picture> Engine::encode_picture(std::span<const uint8_t> file,
                                       const PictureOptions& options) {
  if (!has_vision()) return no_vision();
  return state_->vision->encode(scheduler(), file, options.scope,
                                options.max_tokens > 0 ? options.max_tokens : n_ctx());
}

Result<Picture> Engine::find_picture(const std::string& sha256, const PictureOptions& options) {
  if (!has_vision()) return no_vision();
  return state_->vision->find(sha256, options.scope);
}

Result<Prompt> Engine::place_pictures(std::vector<TokenId> tokens,
                                      std::span<const Picture> pictures) {
  if (!has_vision()) return no_vision();
  return state_->vision->place(std::move(tokens), pictures);
}

VisionCacheStats Engine::vision_cache_stats() const {
  VisionCacheStats stats;
  if (!has_vision()) return stats;
  const reuse::VisionCache& cache = state_->vision->cache();
  stats.bytes = to_stats(cache.counters(reuse::VisionLevel::kBytes));
  stats.views = to_stats(cache.counters(reuse::VisionLevel::kView));
  stats.budget_bytes = cache.budget_bytes();
  return stats;
}

void Engine::clear_vision_cache() {
  if (has_vision()) state_->vision->cache().clear();
}

}  // namespace okibi
