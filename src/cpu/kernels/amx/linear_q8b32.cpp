// gemm with the 32-value types by AMX. A tile product covers the 32 k of a block; its int32 sums go
// through a ring in the first-level cache to AVX-512, which applies the scales block by block.
//
// Work goes in phases of up to four blocks for 16 rows by two panels. While the tiles of one phase
// compute, the phase before is brought to float, eight rows at a time, whose 16 sums stay in
// registers over the four blocks. The two are interleaved by the tile product: 16 vector
// instructions run beside one at no cost, since a product occupies one of the two vector ports.
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

// The tile products of a phase: rows by blocks, in the order (block 0, panel 0), (block 0, panel
// 1), (block 1, panel 0), ... Tiles: C 0-3 in turn, rows 4 and 5, weights 6 and 7. C starts at
// kMagicBits, so that the sums arrive as floats.
//
// A tile is stored two products after its own: stored at once it would stop the product unit until
// the result is there (measured: 12 ns a product instead of 9).
struct Products {
  const int8_t* q = nullptr;
  const uint8_t* codes = nullptr;
  int n_blocks = 0;
  Sums* c = nullptr;
};

struct Stores {
  int32_t (*last)[16] = nullptr;
  int32_t (*before_last)[16] = nullptr;
};

[[gnu::always_inline]] inline void store_tile(int tile, int32_t (*to)[16]) {
  if (to == nullptr) return;
  if (tile == 0) _tile_stored(0, to, 64);
  if (tile == 1) _tile_stored(1, to, 64);
  if (tile == 2) _tile_stored(2, to, 64);
  if (tile == 3) _tile_stored(3, to, 64);
}

// Product number kTile of every four: two blocks (one pair) by two panels.
template <int kTile>
[[gnu::always_inline]] inline void multiply(const Products& t, int64_t q_stride, int pair,
                                            const int32_t* magic, Stores* stores) {
  const int block = 2 * pair + kTile / 2;
  const uint8_t* codes = t.codes + 1024 * block;
  if constexpr (kTile == 0) {
    _tile_loadd(4, t.q + 32 * block, q_stride);
    _tile_loadd(6, codes, 128);
    _tile_loadd(0, magic, 0);
    _tile_dpbssd(0, 4, 6);
  } else if constexpr (kTile == 1) {
    _tile_loadd(7, codes + 64, 128);
    _tile_loadd(1, magic, 0);
    _tile_dpbssd(1, 4, 7);
  } else if constexpr (kTile == 2) {
    _tile_loadd(5, t.q + 32 * block, q_stride);
    _tile_loadd(6, codes, 128);
    _tile_loadd(2, magic, 0);
    _tile_dpbssd(2, 5, 6);
  } else {
    _tile_loadd(7, codes + 64, 128);
    _tile_loadd(3, magic, 0);
    _tile_dpbssd(3, 5, 7);
  }
  store_tile((kTile + 2) & 3, stores->before_last);
  stores->before_last = stores->last;
  stores->last = (*t.c)[block][kTile & 1];
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

// A load that stays an instruction of its own: folded into a multiply-add it would cost a copy of
// the scale, on a vector port.
[[gnu::always_inline]] inline __m512i load_alone(const int32_t* p) {
  __m512i v = load(p);
  __asm__("" : "+v"(v));
  return v;
}

// Rows [first, first + 8) of a phase while their sums are in registers. Rows past its end repeat
// the last one's scales; their sums are never read.
template <bool kHasMin, bool kConvert, int kPanels>
struct Group {
  const float* d;
  const float* dsums;
  const int32_t* c;
  float* sums;
  int first;
  __m512 acc[kGroupRows][kPanels];

  [[gnu::always_inline]] inline void begin(const Step32& s, const Pending& phase, int group) {
    first = group;
    sums = s.acc + (phase.tile * kTileRows + group) * kAccFloats;
    d = s.d + phase.block * s.table_stride + phase.first + group;
    dsums = s.dsums + phase.block * s.table_stride + phase.first + group;
    c = (*phase.c)[0][0][group];
    const __mmask16 keep = phase.is_first ? __mmask16(0) : __mmask16(0xffff);
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        acc[r][p] = _mm512_maskz_load_ps(keep, sums + r * kAccFloats + 16 * p);
      }
    }
  }

  [[gnu::always_inline]] inline void add(const Step32& s, const Pending& phase, int b) {
    __m512 scale[kPanels], back[kPanels], minimum[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      scale[p] = _mm512_load_ps(s.chunk->scale[phase.block + b][p]);
      back[p] = _mm512_mul_ps(scale[p], _mm512_set1_ps(-kMagic));
      if constexpr (kHasMin) minimum[p] = _mm512_load_ps(s.chunk->minimum[phase.block + b][p]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
      const __m512 da = broadcast(d + r);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const __m512i v = load_alone(c + kTileRows * 16 * p + 16 * r);
        acc[r][p] = _mm512_fmadd_ps(scaled<kConvert>(v, scale[p], back[p]), da, acc[r][p]);
        if constexpr (kHasMin) {
          acc[r][p] = _mm512_fmadd_ps(minimum[p], broadcast(dsums + r), acc[r][p]);
        }
      }
    }
    d += s.table_stride;
    dsums += s.table_stride;
    c += 2 * kTileRows * 16;
  }

  [[gnu::always_inline]] inline void end(const Step32& s, const Pending& phase) const {
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        if (!phase.is_last) {
          _mm512_store_ps(sums + r * kAccFloats + 16 * p, acc[r][p]);
        } else if (first + r >= phase.repeated && first + r < phase.n_rows) {
          finish(s.out, phase.first + first + r, p, acc[r][p]);
        }
      }
    }
  }
};

// The products of `next` interleaved with the float part of `before`; either may be empty. An odd
// last block of `next` is computed with a neighbour that nobody reads.
template <bool kHasMin, bool kConvert, int kPanels>
void run_phase(const Step32& s, const int32_t* magic, const Products& next, const Pending& before,
               Stores* stores) {
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const bool has_rows = g * kGroupRows < before.n_rows, has_pair = 2 * g < next.n_blocks;
    Group<kHasMin, kConvert, kPanels> group;
    if (has_rows) group.begin(s, before, g * kGroupRows);
    if (has_pair) multiply<0>(next, s.q_stride, g, magic, stores);
    if (has_rows) group.add(s, before, 0);
    if (has_pair) multiply<1>(next, s.q_stride, g, magic, stores);
    if (has_rows && before.n_blocks > 1) group.add(s, before, 1);
    if (has_pair) multiply<2>(next, s.q_stride, g, magic, stores);
    if (has_rows && before.n_blocks > 2) group.add(s, before, 2);
    if (has_pair) multiply<3>(next, s.q_stride, g, magic, stores);
    if (has_rows && before.n_blocks > 3) group.add(s, before, 3);
    if (has_rows) group.end(s, before);
  }
}

// A chunk for all rows of the step. `ring` holds two phases.
template <bool kHasMin, bool kConvert, int kPanels>
void add_chunk(const Step32& s, Sums* ring) {
  const RowTiles tiles(s.n_rows, kTileRows);
  alignas(64) int32_t magic[16];
  store(magic, _mm512_set1_epi32(kConvert ? 0 : kMagicBits));
  settle_memory();
  Pending before;
  Stores stores;
  int turn = 0;
  for (int64_t i = 0; i < tiles.n_tiles; ++i) {
    prefetch_part(s.ahead, i, tiles.n_tiles);
    if (s.is_last) prefetch_outputs(s.out, tiles.first(i), tiles.height);
    for (int block = 0; block < s.n_blocks; block += kPhaseBlocks, turn ^= 1) {
      const int n = static_cast<int>(min64(kPhaseBlocks, s.n_blocks - block));
      const Products next = {s.q + tiles.first(i) * s.q_stride + 32 * block,
                             s.chunk->codes + 1024 * block, n, &ring[turn]};
      run_phase<kHasMin, kConvert, kPanels>(s, magic, next, before, &stores);
      before = {tiles.first(i),
                tiles.height,
                tiles.repeated(i),
                i,
                block,
                n,
                s.is_first && block == 0,
                s.is_last && block + n == s.n_blocks,
                &ring[turn]};
    }
  }
  store_tile(2, stores.before_last);
  store_tile(3, stores.last);
  run_phase<kHasMin, kConvert, kPanels>(s, magic, {}, before, &stores);
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
      add_chunk<T::kHasMin, T::kConvert, 2>(s, ring);
    } else {
      add_chunk<T::kHasMin, T::kConvert, 1>(s, ring);
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
  improve<MXFP4>(t[weight::kMXFP4], "amx.gemm_mxfp4");
  improve<Q2_0>(t[weight::kQ2_0], "amx.gemm_q2_0");
  improve<Q1_0>(t[weight::kQ1_0], "amx.gemm_q1_0");
  improve<IQ4_NL>(t[weight::kIQ4_NL], "amx.gemm_iq4_nl");
}

}  // namespace amx
}  // namespace okibi::cpu
