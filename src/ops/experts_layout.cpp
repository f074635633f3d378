#include "ops/experts_layout.h"

#include <algorithm>

namespace okibi::ops {
namespace {

// Gate and up of this many pairs of 640 values take 2.6 MB, near what second-level caches hold
// (measured: a layer of 512 rows takes 19.0 ms on one thread; 20.0 with twice as many).
constexpr int64_t kWavePairs = 512;
constexpr int64_t kTileRows = 32;
// Fewer rows of an expert are not worth a tile.
constexpr int64_t kLeastTileRows = 4;

}  // namespace

int64_t experts_wave_pairs(const ExpertsConfig& config) {
  // All rows may want one expert.
  const int64_t n_pairs = config.max_rows * config.n_used;
  return std::max(config.max_rows, std::min(n_pairs, kWavePairs));
}

uint64_t experts_bytes(const ExpertsConfig& config) {
  const int64_t n_pairs = config.max_rows * config.n_used;
  const int64_t wave = experts_wave_pairs(config);
  const int64_t widest = std::max(config.d_model, config.d_ff);
  const int64_t n_cut = std::min<int64_t>(config.n_experts, wave / kLeastTileRows);
  const int64_t tiled_rows = wave + (kTileRows - 1) * n_cut;
  const int64_t routing = n_pairs * 16 + config.n_experts * 16;
  return static_cast<uint64_t>(4 * n_pairs * config.d_model + 8 * wave * config.d_ff +
                               4 * wave * widest + tiled_rows * widest * 5 / 4 + routing);
}

}  // namespace okibi::ops
