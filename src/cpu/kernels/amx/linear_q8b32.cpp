// gemm with the 32-value types by AMX. A tile product covers the 32 k of a block (NVFP4: the 16 k
// of half a block, which has a scale of its own; "block" below means what one scale covers); its
// int32 sums go through a ring in the first-level cache to AVX-512, which applies the scales block
// by block.
//
// Work goes in phases of up to four blocks for half a tile (16 rows) by two panels. While the tiles
// of one phase compute, the phase before is brought to float, eight rows at a time, whose 16 sums
// stay in registers over the four blocks. The two are interleaved by the tile product: 16 vector
// instructions run beside one at no cost, since a product occupies one of the two vector ports.
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/tile_walk.h"
#include "cpu/kernels/avx512/x16_gemm32.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace amx_tile;
using namespace x16;

constexpr int kPhaseBlocks = 4;
constexpr int kHalfRows = 16;
constexpr int kGroupRows = 8;  // rows that meet their scales together

// Sums of one phase: [block][panel][row][output].
using Sums = int32_t[kPhaseBlocks][2][kHalfRows][16];

struct TileChunk32 : Chunk32 {
  Sums ring[2];
};
using Step = TileStep<TileChunk32>;

// Parts of a record of ActivationTiles.
constexpr int64_t kScalesAt = 8 * 32 * kTileHeight;
constexpr int64_t kSumsAt = kScalesAt + 8 * 4 * kTileHeight;

// The tile products of a phase: rows by blocks, in the order (block 0, panel 0), (block 0, panel
// 1), (block 1, panel 0), ... Tiles: C 0-3 in turn, rows 4 and 5, weights 6 and 7. C starts at
// kMagicBits, so that the sums arrive as floats.
//
// A tile is stored two products after its own: stored at once it would stop the product unit until
// the result is there (measured: 12 ns a product instead of 9).
struct Products {
  const uint8_t* rows = nullptr;
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
template <int kTile, int kScales>
[[gnu::always_inline]] inline void multiply(const Products& t, int pair, const int32_t* magic,
                                            Stores* stores) {
  const int block = 2 * pair + kTile / 2;
  const uint8_t* codes = t.codes + 1024 / kScales * block;
  const uint8_t* rows = t.rows + 32 * kTileHeight * (block / kScales) + 16 * (block % kScales);
  if constexpr (kTile == 0) {
    _tile_loadd(4, rows, 32);
    _tile_loadd(6, codes, 128);
    _tile_loadd(0, magic, 0);
    _tile_dpbssd(0, 4, 6);
  } else if constexpr (kTile == 1) {
    _tile_loadd(7, codes + 64, 128);
    _tile_loadd(1, magic, 0);
    _tile_dpbssd(1, 4, 7);
  } else if constexpr (kTile == 2) {
    _tile_loadd(5, rows, 32);
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
  const uint8_t* record = nullptr;
  float* acc = nullptr;       // of the tile
  int64_t row = 0;            // of the tile, in the product
  int first = 0, n_rows = 0;  // of the tile's rows
  int block = 0, n_blocks = 0;
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

// Rows [first, first + 8) of a phase while their sums are in registers. Rows past its end have sums
// and scales of no meaning that are never read.
template <class T, int kPanels>
struct Group {
  const float* d;
  const float* dsums;
  const int32_t* c;
  float* sums;
  int first;  // row of the tile
  __m512 acc[kGroupRows][kPanels];

  [[gnu::always_inline]] inline void begin(const Pending& phase, int group) {
    first = phase.first + group;
    sums = phase.acc + 16 * first;
    const int64_t at = kTileHeight * (phase.block / T::kScales) + first;
    d = reinterpret_cast<const float*>(phase.record + kScalesAt) + at;
    dsums = reinterpret_cast<const float*>(phase.record + kSumsAt) + at;
    c = (*phase.c)[0][0][group];
    const __mmask16 keep = phase.is_first ? __mmask16(0) : __mmask16(0xffff);
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        acc[r][p] = _mm512_maskz_load_ps(keep, sums + 16 * (kTileHeight * p + r));
      }
    }
  }

  [[gnu::always_inline]] inline void add(const Step& s, const Pending& phase, int b) {
    __m512 scale[kPanels], back[kPanels], minimum[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      scale[p] = _mm512_load_ps(s.chunk->scale[phase.block + b][p]);
      back[p] = _mm512_mul_ps(scale[p], _mm512_set1_ps(-kMagic));
      if constexpr (T::kHasMin) minimum[p] = _mm512_load_ps(s.chunk->minimum[phase.block + b][p]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
      const __m512 da = broadcast(d + r);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const __m512i v = load_alone(c + kHalfRows * 16 * p + 16 * r);
        acc[r][p] = _mm512_fmadd_ps(scaled<T::kConvert>(v, scale[p], back[p]), da, acc[r][p]);
        if constexpr (T::kHasMin) {
          acc[r][p] = _mm512_fmadd_ps(minimum[p], broadcast(dsums + r), acc[r][p]);
        }
      }
    }
    if ((b + 1) % T::kScales == 0) {
      d += kTileHeight;
      dsums += kTileHeight;
    }
    c += 2 * kHalfRows * 16;
  }

  [[gnu::always_inline]] inline void end(const Step& s, const Pending& phase) const {
    const int64_t row = phase.row + first;
#pragma GCC unroll 8
    for (int r = 0; r < kGroupRows; ++r) {
      const bool is_wanted = first + r < s.height && row + r >= s.row_begin && row + r < s.row_end;
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        if (!phase.is_last) {
          _mm512_store_ps(sums + 16 * (kTileHeight * p + r), acc[r][p]);
        } else if (is_wanted) {
          finish_row(s, row + r, p, acc[r][p]);
        }
      }
    }
  }
};

// The products of `next` interleaved with the float part of `before`; either may be empty. An odd
// last block of `next` is computed with a neighbour that nobody reads.
template <class T, int kPanels>
void run_phase(const Step& s, const int32_t* magic, const Products& next, const Pending& before,
               Stores* stores) {
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const bool has_rows = g * kGroupRows < before.n_rows, has_pair = 2 * g < next.n_blocks;
    Group<T, kPanels> group;
    if (has_rows) group.begin(before, g * kGroupRows);
    if (has_pair) multiply<0, T::kScales>(next, g, magic, stores);
    if (has_rows) group.add(s, before, 0);
    if (has_pair) multiply<1, T::kScales>(next, g, magic, stores);
    if (has_rows && before.n_blocks > 1) group.add(s, before, 1);
    if (has_pair) multiply<2, T::kScales>(next, g, magic, stores);
    if (has_rows && before.n_blocks > 2) group.add(s, before, 2);
    if (has_pair) multiply<3, T::kScales>(next, g, magic, stores);
    if (has_rows && before.n_blocks > 3) group.add(s, before, 3);
    if (has_rows) group.end(s, before);
  }
}

// A chunk for all tiles of the step, half by half.
template <class T, int kPanels>
void add_chunk(const Step& s) {
  TileChunk32* chunk = s.chunk;
  const int n_blocks = T::kScales * static_cast<int>(min64(kChunkBlocks, s.k_left / 32));
  const int n_halves = s.height > kHalfRows ? 2 : 1;
  alignas(64) int32_t magic[16];
  store(magic, _mm512_set1_epi32(T::kConvert ? 0 : kMagicBits));
  settle_memory();
  Pending before;
  Stores stores;
  int turn = 0;
  for (int64_t i = 0; i < s.n_tiles; ++i) {
    const uint8_t* record = s.records + i * s.record_bytes;
    prefetch_part(s.ahead, i, s.n_tiles);
    prefetch_outputs(s, i);
    for (int half = 0; half < n_halves; ++half) {
      const int first = half * kHalfRows;
      for (int block = 0; block < n_blocks; block += kPhaseBlocks, turn ^= 1) {
        const int n = n_blocks - block < kPhaseBlocks ? n_blocks - block : kPhaseBlocks;
        const Products next = {record + 32 * (kTileHeight * (block / T::kScales) + first),
                               chunk->codes + 1024 / T::kScales * block, n, &chunk->ring[turn]};
        run_phase<T, kPanels>(s, magic, next, before, &stores);
        before = {record,
                  s.acc + i * kTileSums,
                  s.row + i * s.height,
                  first,
                  static_cast<int>(min64(kHalfRows, s.height - first)),
                  block,
                  n,
                  s.is_first && block == 0,
                  s.is_last && block + n == n_blocks,
                  &chunk->ring[turn]};
      }
    }
  }
  store_tile(2, stores.before_last);
  store_tile(3, stores.last);
  run_phase<T, kPanels>(s, magic, {}, before, &stores);
}

int64_t scratch_bytes(int64_t n_in) {
  return tile_scratch_bytes<TileChunk32>(n_in);
}

template <class T>
void gemm(const ProductArgs& args) {
  const int64_t height = args.a.tiles.height;
  const int64_t half_rows = min64(height, kHalfRows);
  Config config;
  for (int tile = 0; tile < 4; ++tile) config.set(tile, half_rows, 64);
  for (int tile = 4; tile < 6; ++tile) config.set(tile, half_rows, 32 / T::kScales);
  for (int tile = 6; tile < 8; ++tile) config.set(tile, 8 / T::kScales, 64);
  load_config(config);
  const int64_t n_in = args.w.n_in;
  const auto unpack = [&args, n_in](int64_t c, int64_t panel, int p, TileChunk32* chunk) {
    const int64_t block = kChunkBlocks * c;
    unpack_chunk32<T, true>(args.w.data + panel * args.w.panel_bytes, n_in, block,
                            static_cast<int>(min64(kChunkBlocks, n_in / 32 - block)), p, chunk);
  };
  const auto bytes = [&args, n_in](int64_t c, int64_t panel, Ahead* ahead) {
    const uint8_t* base = args.w.data + panel * args.w.panel_bytes;
    const int64_t block = kChunkBlocks * c;
    ahead->add(base + units_offset<T>(n_in) + block / 2 * T::kUnitBytes,
               kChunkBlocks / 2 * T::kUnitBytes);
    ahead->add(scales_at<T>(base, block), kChunkBlocks / (T::kFileValues / 32) * T::kScaleBytes);
  };
  walk_tiles<TileChunk32>(args, ActivationFormat::kQ8B32, unpack, bytes, [](const Step& s) {
    if (s.n_panels == 2) {
      add_chunk<T, 2>(s);
    } else {
      add_chunk<T, 1>(s);
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
  improve<NVFP4>(t[weight::kNVFP4], "amx.gemm_nvfp4");
  t[weight::kNVFP4].gemm_min_rows = kGemvRows + 1;
}

}  // namespace amx
}  // namespace okibi::cpu
