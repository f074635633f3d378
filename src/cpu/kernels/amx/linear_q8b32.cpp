// gemm with the 32-value types by AMX. A tile product covers the 32 k of a block; its int32 sums go
// through a ring in the first-level cache to AVX-512, which applies the scales block by block.
//
// Work goes in phases of up to four blocks for 16 rows by two panels: while the tiles of one phase
// compute, the phase before is brought to float, eight rows at a time, whose 16 sums stay in
// registers over the four blocks.
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/x16_gemm32.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace amx_tile;
using namespace x16;

constexpr int kPhaseBlocks = 4;
constexpr int kTileRows = 16;
constexpr int kGroupRows = 8;  // rows that meet their scales together

// Sums of one phase: [block][panel][row][output].
using Sums = int32_t[kPhaseBlocks][2][kTileRows][16];

// The tiles of block b of the step into c. Tiles: C 0-3 (even and odd blocks apart, so that one may
// be stored while the other computes), rows 4, 5, weights 6, 7.
template <int kPanels, bool kOdd>
[[gnu::always_inline]] inline void multiply_block(const int8_t* q, int64_t q_stride,
                                                  const uint8_t* codes,
                                                  int32_t (*c)[kTileRows][16]) {
  if constexpr (!kOdd) {
    _tile_loadd(4, q, q_stride);
    _tile_loadd(6, codes, 128);
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, c[0], 64);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, codes + 64, 128);
      _tile_zero(1);
      _tile_dpbssd(1, 4, 7);
      _tile_stored(1, c[1], 64);
    }
  } else {
    _tile_loadd(5, q, q_stride);
    _tile_loadd(6, codes, 128);
    _tile_zero(2);
    _tile_dpbssd(2, 5, 6);
    _tile_stored(2, c[0], 64);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, codes + 64, 128);
      _tile_zero(3);
      _tile_dpbssd(3, 5, 7);
      _tile_stored(3, c[1], 64);
    }
  }
}

// A phase whose sums wait to be brought to float.
struct Pending {
  int64_t first = 0, n_rows = 0;  // rows of the step
  int64_t repeated = 0;           // of these at the head that the tile before has
  int64_t tile = 0;
  int block = 0, n_blocks = 0;  // of the chunk
  bool is_first = false, is_last = false;
  const Sums* c = nullptr;
};

// Rows [group, group + 8) of the phase. Rows past its end repeat the last one's scales; their sums
// are never read.
template <bool kHasMin, int kPanels>
[[gnu::always_inline]] inline void add_group(const Step32& s, const Pending& phase, int group) {
  float* sums = s.acc + (phase.tile * kTileRows + group) * kAccFloats;
  const float* d[kGroupRows];
  const float* dsums[kGroupRows];
  __m512 acc[kGroupRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kGroupRows; ++r) {
    const int64_t row = phase.first + min64(group + r, phase.n_rows - 1);
    d[r] = s.d + row * s.d_stride + phase.block;
    dsums[r] = s.dsums + row * s.table_stride + phase.block;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] =
          phase.is_first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kAccFloats + 16 * p);
    }
  }
  for (int b = 0; b < phase.n_blocks; ++b) {
    __m512 scale[kPanels], minimum[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      scale[p] = _mm512_load_ps(s.chunk->scale[phase.block + b][p]);
      if constexpr (kHasMin) minimum[p] = _mm512_load_ps(s.chunk->minimum[phase.block + b][p]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
      const __m512 da = broadcast(d[r] + b);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const __m512 v = _mm512_cvtepi32_ps(load((*phase.c)[b][p][group + r]));
        acc[r][p] = _mm512_fmadd_ps(_mm512_mul_ps(v, scale[p]), da, acc[r][p]);
        if constexpr (kHasMin) {
          acc[r][p] = _mm512_fmadd_ps(minimum[p], broadcast(dsums[r] + b), acc[r][p]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kGroupRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      if (phase.is_last) {
        if (group + r >= phase.repeated && group + r < phase.n_rows) {
          finish(s.out, phase.first + group + r, p, acc[r][p]);
        }
      } else {
        _mm512_store_ps(sums + r * kAccFloats + 16 * p, acc[r][p]);
      }
    }
  }
}

// A chunk for all rows of the step. `ring` holds two phases.
template <bool kHasMin, int kPanels>
void add_chunk(const Step32& s, Sums* ring) {
  const RowTiles tiles(s.n_rows, kTileRows);
  Pending before;
  int turn = 0;
  for (int64_t i = 0; i < tiles.n_tiles; ++i) {
    prefetch_part(s.ahead, i, tiles.n_tiles);
    const int8_t* q = s.q + tiles.first(i) * s.q_stride;
    for (int block = 0; block < s.n_blocks; block += kPhaseBlocks, turn ^= 1) {
      const int n = static_cast<int>(min64(kPhaseBlocks, s.n_blocks - block));
      Sums& c = ring[turn];
      for (int b = 0; b < n; b += 2) {
        const uint8_t* codes = s.chunk->codes + 1024 * (block + b);
        multiply_block<kPanels, false>(q + 32 * (block + b), s.q_stride, codes, c[b]);
        if (b + 1 < n) {
          multiply_block<kPanels, true>(q + 32 * (block + b + 1), s.q_stride, codes + 1024,
                                        c[b + 1]);
        }
        if (kGroupRows * b / 2 < before.n_rows) {
          add_group<kHasMin, kPanels>(s, before, kGroupRows * b / 2);
        }
      }
      if (n <= 2 && before.n_rows > kGroupRows) {
        add_group<kHasMin, kPanels>(s, before, kGroupRows);
      }
      before = {tiles.first(i),
                tiles.height,
                tiles.repeated(i),
                i,
                block,
                n,
                s.is_first && block == 0,
                s.is_last && block + n == s.n_blocks,
                &c};
    }
  }
  add_group<kHasMin, kPanels>(s, before, 0);
  if (before.n_rows > kGroupRows) add_group<kHasMin, kPanels>(s, before, kGroupRows);
}

// Scratch behind that of the walk: sums of the rows that pad the last tile, then the ring.
int64_t scratch_bytes(int64_t n_in) {
  return gemm32_scratch_bytes(n_in) + 2 * int64_t{sizeof(Sums)};
}

template <class T>
void gemm(const ProductArgs& args) {
  Sums* ring = reinterpret_cast<Sums*>(divide_scratch32(args.scratch, args.w.n_in).rest);
  int64_t configured = 0;
  walk32<T, true>(args, [&](const Step32& s) {
    const int64_t height = RowTiles(s.n_rows, kTileRows).height;
    if (height != configured) {
      Config config;
      for (int tile = 0; tile < 4; ++tile) config.set(tile, height, 64);
      for (int tile = 4; tile < 6; ++tile) config.set(tile, height, 32);
      for (int tile = 6; tile < 8; ++tile) config.set(tile, 8, 64);
      load_config(config);
      configured = height;
    }
    if (s.n_panels == 2) {
      add_chunk<T::kHasMin, 2>(s, ring);
    } else {
      add_chunk<T::kHasMin, 1>(s, ring);
    }
  });
  _tile_release();
}

template <class T>
void improve(LinearKernels& k, const char* gemm_name) {
  k.gemm = gemm<T>;
  k.gemm_name = gemm_name;
  k.scratch_bytes = scratch_bytes;
}

}  // namespace

namespace amx {

void install_q8b32(KernelTable& table) {
  LinearKernels* t = table.linear;
  improve<Q8_0>(t[weight::kQ8_0], "amx.gemm_q8_0");
  improve<Q4_0>(t[weight::kQ4_0], "amx.gemm_q4_0");
  improve<Q4_1>(t[weight::kQ4_1], "amx.gemm_q4_1");
  improve<Q5_0>(t[weight::kQ5_0], "amx.gemm_q5_0");
  improve<Q5_1>(t[weight::kQ5_1], "amx.gemm_q5_1");
  improve<IQ4_NL>(t[weight::kIQ4_NL], "amx.gemm_iq4_nl");
}

}  // namespace amx
}  // namespace okibi::cpu
