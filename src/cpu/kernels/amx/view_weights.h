// Scores of a tile of queries with a block of keys to weights (cpu/view_attend.h): 16 bits of a
// number of powers of two, whose bits are nearly those of the power. 13 vector operations for 32
// keys, and nothing but loads stands between those of several rows.
#pragma once

#include "cpu/kernels/amx/tile_runs.h"
#include "cpu/kernels/avx512/x16.h"
#include "cpu/view_attend.h"

namespace okibi::cpu {
namespace {
namespace amx_view {

using amx_tile::kTileFloats;

constexpr float kPowerSteps = 512.0f;  // of w in a power of two
constexpr float kReference = 60.0f;    // the power that M becomes
// Scores of 32 queries and 32 keys: [16 keys][32 queries]. Weights, of half the size, replace the
// first half.
constexpr int64_t kGroupFloats = 4 * kTileFloats;
constexpr int64_t kBlockGroups = kViewBlockKeys / 32;

// Scores of a row with n_keys keys of a block.
struct ScoreRow {
  float* scores = nullptr;  // of the first group
  int64_t n_keys = 0;
  int64_t n_groups() const { return (n_keys + 31) / 32; }
};

struct RowSum {
  __m512 low, high;
};

// Weights of the rows of one tile of queries, block after block.
class Weigher {
 public:
  explicit Weigher(float scale)
      : factor_(scale * (kPowerSteps * 0x1.715476p+0f)), powers_(x16::load(kViewPowers)) {}

  // Row r, whose sum are 32 floats.
  [[gnu::always_inline]] inline void weigh(int64_t r, const ScoreRow& row, bool is_first,
                                           float* sum) {
    RowSum l{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (is_first) {
      offsets_[r] = offset_of(largest(row));
    } else {
      l = {_mm512_load_ps(sum), _mm512_load_ps(sum + 16)};
    }
    if (!try_weigh(row, offsets_[r], l)) [[unlikely]] {
      raise(r, row, l);
    }
    _mm512_store_ps(sum, l.low);
    _mm512_store_ps(sum + 16, l.high);
  }

  // Multiplies the rows of (n_tiles, 32, 16) results by what their references rose.
  void lower(float* results, int64_t n_tiles) {
    if (!has_raised_) return;
    has_raised_ = false;
    for (int64_t r = 0; r < kViewTileQueries; ++r) {
      if (fallen_[r] == 0.0f) continue;
      const __m512 by = _mm512_set1_ps(fallen_[r]);
      fallen_[r] = 0.0f;
      for (int64_t t = 0; t < n_tiles; ++t) {
        float* x = results + (t * kViewTileQueries + r) * 16;
        _mm512_store_ps(x, _mm512_scalef_ps(_mm512_load_ps(x), by));
      }
    }
  }

 private:
  // What is added to a score's w when M is that of `largest`.
  float offset_of(float largest) const {
    const __m128 power = _mm_set_ss(largest * factor_ * (1.0f / kPowerSteps));
    const float m = _mm_cvtss_f32(_mm_floor_ss(power, power));
    return (kReference - m) * kPowerSteps + 2.0f;
  }

  static float largest(const ScoreRow& row) {
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 most = lowest;
    const float* scores = row.scores;
    for (int64_t left = row.n_keys; left > 0; left -= 32, scores += kGroupFloats) {
      const uint32_t keys = left >= 32 ? ~0u : (1u << left) - 1;
      const auto low = static_cast<__mmask16>(_pext_u32(keys, 0x0f0f0f0fu));
      const auto high = static_cast<__mmask16>(_pext_u32(keys, 0xf0f0f0f0u));
      most = _mm512_mask_max_ps(most, low, most, _mm512_load_ps(scores));
      most = _mm512_mask_max_ps(most, high, most, _mm512_load_ps(scores + kGroupFloats / 2));
    }
    return _mm512_reduce_max_ps(most);
  }

  // w of the 32 keys of a group.
  __m512i words(const float* scores, __m512 offset) const {
    const __m512 factor = _mm512_set1_ps(factor_);
    const __m512 low = _mm512_fmadd_ps(_mm512_load_ps(scores), factor, offset);
    const __m512 high = _mm512_fmadd_ps(_mm512_load_ps(scores + kGroupFloats / 2), factor, offset);
    return _mm512_packus_epi32(_mm512_cvtps_epi32(low), _mm512_cvtps_epi32(high));
  }
  // w to p, which is added to l. Three loops, so that the chains of several groups stand side by
  // side where the scheduler sees them.
  template <int kN>
  [[gnu::always_inline]] inline void finish(const __m512i* w, float* scores, RowSum& l) const {
    const __m512i zero = _mm512_setzero_si512();
    __m512i p[kN];
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      p[i] =
          _mm512_maskz_permutexvar_epi8(0x5555555555555555u, _mm512_srli_epi16(w[i], 3), powers_);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      p[i] = _mm512_srli_epi16(_mm512_sub_epi16(w[i], p[i]), 2);
      x16::store(scores + i * kGroupFloats, p[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      l.low = _mm512_add_ps(l.low, _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, p[i])));
      l.high = _mm512_add_ps(l.high, _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, p[i])));
    }
  }

  // False, with nothing written, when a score is too far above the reference.
  [[gnu::always_inline]] inline bool try_weigh(const ScoreRow& row, float offset, RowSum& l) const {
    const __m512 offsets = _mm512_set1_ps(offset);
    __m512i w[kBlockGroups], any = _mm512_setzero_si512();
    if (row.n_keys == kViewBlockKeys) {
#pragma GCC unroll 8
      for (int i = 0; i < kBlockGroups; ++i) w[i] = words(row.scores + i * kGroupFloats, offsets);
#pragma GCC unroll 8
      for (int i = 0; i < kBlockGroups; ++i) any = _mm512_or_si512(any, w[i]);
      if (_mm512_movepi16_mask(any) != 0) [[unlikely]] {
        return false;
      }
      finish<kBlockGroups>(w, row.scores, l);
      return true;
    }
    const int64_t n = row.n_groups();
    for (int64_t i = 0; i < n; ++i) w[i] = words(row.scores + i * kGroupFloats, offsets);
    if (row.n_keys % 32 != 0) {
      w[n - 1] = _mm512_maskz_mov_epi16((1u << (row.n_keys % 32)) - 1, w[n - 1]);
    }
    for (int64_t i = 0; i < n; ++i) any = _mm512_or_si512(any, w[i]);
    if (_mm512_movepi16_mask(any) != 0) return false;
    for (int64_t i = 0; i < n; ++i) finish<1>(w + i, row.scores + i * kGroupFloats, l);
    return true;
  }

  [[gnu::noinline]] void raise(int64_t r, const ScoreRow& row, RowSum& l) {
    const float before = offsets_[r];
    offsets_[r] = offset_of(largest(row));
    fallen_[r] = (offsets_[r] - before) / kPowerSteps;
    has_raised_ = true;
    const __m512 by = _mm512_set1_ps(fallen_[r]);
    l = {_mm512_scalef_ps(l.low, by), _mm512_scalef_ps(l.high, by)};
    try_weigh(row, offsets_[r], l);
  }

  float factor_;
  __m512i powers_;
  float offsets_[kViewTileQueries] = {};
  float fallen_[kViewTileQueries] = {};  // powers of two, 0: none
  bool has_raised_ = false;
};

}  // namespace amx_view
}  // namespace
}  // namespace okibi::cpu
