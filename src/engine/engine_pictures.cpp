// The functions of Engine for pictures (they check that there is a vision side and pass on) and for
// what decisions keep.
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

reuse::AnswerCache& Engine::answer_cache() {
  return *state_->answers;
}

DecisionCacheStats Engine::decision_cache_stats() {
  DecisionCacheStats stats;
  reuse::PrefixCounters p;
  scheduler().call([&p](engine::Core& core) { p = core.prefixes().counters(); });
  stats.states = {.hits = p.hits,
                  .misses = p.misses,
                  .evictions = p.evictions,
                  .entries = p.entries,
                  .bytes = p.bytes};
  const reuse::AnswerCounters a = answer_cache().counters();
  stats.answers = {.hits = a.hits,
                   .misses = a.misses,
                   .evictions = a.evictions,
                   .entries = a.entries,
                   .bytes = a.bytes};
  return stats;
}

void Engine::clear_decision_caches() {
  scheduler().call([](engine::Core& core) { core.prefixes().clear(); });
  answer_cache().clear();
}

}  // namespace okibi
