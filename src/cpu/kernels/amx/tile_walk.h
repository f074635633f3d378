// The walk of the AMX products: over the tiles of the activations, panels and chunks of 256 k.
//
// Order: up to 512 rows; up to eight panels; the chunks of the row; the panels two at a time; the
// tiles. Two panels of a chunk are unpacked into the first-level cache and meet every tile. The
// tiles of a chunk and the sums (in scratch between chunks, so that the order of their addition
// stays k) wait in the second-level cache.
#pragma once

#include "cpu/kernels/amx/tile.h"
#include "cpu/kernels/avx512/x16.h"

namespace okibi::cpu {
namespace {
namespace amx_tile {
using namespace x16;

// One step: a chunk of one or two panels for the tiles of a strip. Pointers stand at the strip's
// first tile, whose first row in the product is `row`.
template <class Chunk>
struct TileStep {
  Chunk* chunk;
  int n_panels;
  int64_t n_tiles, height;
  const uint8_t* records;  // ActivationTiles, record_bytes apart
  int64_t record_bytes;
  float* acc;  // [tile][panel][kTileHeight][16]
  int64_t row, row_begin, row_end;
  bool stream;             // results go past the caches
  bool is_first, is_last;  // chunk of the row: sums start at zero, sums go to the output
  int64_t k_left;          // from the chunk's first on
  Output out;              // rows counted from the product's first
  Ahead ahead;
};

// Accumulated outputs lie far apart: without this every addition waits for memory.
template <class Chunk>
void prefetch_outputs(const TileStep<Chunk>& s, int64_t tile) {
  if (!s.is_last || s.stream) return;
  const int64_t first = s.row + tile * s.height;
  for (int64_t r = first; r < min64(first + s.height, s.row_end); ++r) {
    prefetch(s.out.at + r * s.out.stride);
    prefetch(s.out.at + r * s.out.stride + kPanelRows);
  }
}

// Row `row` of the product, panel p of the step.
template <class Chunk>
[[gnu::always_inline]] inline void finish_row(const TileStep<Chunk>& s, int64_t row, int p,
                                              __m512 acc) {
  if (s.stream) {
    _mm512_stream_ps(s.out.at + row * s.out.stride + p * kPanelRows,
                     _mm512_mul_ps(acc, _mm512_set1_ps(s.out.scale)));
  } else {
    finish(s.out, row, p, acc);
  }
}

constexpr int64_t kMaxStripTiles = 16;
constexpr int64_t kGroupPairs = 4;
constexpr int64_t kTileSums = 2 * kTileHeight * 16;  // floats

template <class Chunk>
int64_t tile_scratch_bytes(int64_t n_in) {
  // gemv is that of avx512; its tables of four rows take less than 2 * n_in bytes.
  return max64(int64_t{sizeof(Chunk)} + kGroupPairs * kMaxStripTiles * kTileSums * 4,
               2 * round_up(n_in, 512) + 1024);
}

// Results that leave the caches before they are read again go past them: a store that first has to
// fetch its line costs more than the products it belongs to (measured: 390 instead of 253 ns for
// 32 rows by 16 outputs by 256 k).
inline bool streams(const ProductArgs& args, const Output& out) {
  constexpr int64_t kCacheBytes = 1 << 20;
  return !args.accumulate && (out.mask[0] & out.mask[1]) == 0xffff &&
         args.a.tiles.n_tiles * args.a.tiles.height * args.w.n_out * 4 > kCacheBytes &&
         (reinterpret_cast<uintptr_t>(out.at) & 63) == 0 && args.out_stride % 16 == 0;
}

// One chunk of up to eight panels, two at a time, for the tiles of a strip.
template <class Chunk, class Unpack, class Bytes, class Rows>
void walk_group(const ProductArgs& args, TileStep<Chunk>* s, int64_t c, int64_t group,
                const Unpack& unpack, const Bytes& bytes, const Rows& rows) {
  const int64_t group_end = min64(group + 2 * kGroupPairs, args.panel_end);
  Chunk* chunk = s->chunk;
  float* acc = reinterpret_cast<float*>(chunk + 1);
  for (int64_t panel = group; panel < group_end; panel += 2) {
    s->n_panels = static_cast<int>(min64(2, args.panel_end - panel));
    for (int p = 0; p < s->n_panels; ++p) unpack(c, panel + p, p, chunk);
    s->acc = acc + (panel - group) / 2 * kMaxStripTiles * kTileSums;
    s->out = output_at(args, 0, panel, s->n_panels);
    s->stream = s->n_panels == 2 && streams(args, s->out);
    s->ahead = {};
    const bool wraps = panel + 2 >= group_end;
    const int64_t next = !wraps ? panel + 2 : s->is_last ? group_end : group;
    const int64_t next_chunk = !wraps ? c : s->is_last ? 0 : c + 1;
    for (int64_t p = next; p < min64(next + 2, args.panel_end); ++p) {
      bytes(next_chunk, p, &s->ahead);
    }
    settle_memory();
    rows(*s);
  }
}

// unpack(chunk number, panel, p, chunk) fills slot p of the chunk; bytes(chunk number, panel, runs)
// names the packed bytes it will read; rows(step) adds the chunk to the sums.
template <class Chunk, class Unpack, class Bytes, class Rows>
void walk_tiles(const ProductArgs& args, ActivationFormat format, const Unpack& unpack,
                const Bytes& bytes, const Rows& rows) {
  const ActivationTiles& tiles = args.a.tiles;
  const int64_t n_in = args.w.n_in, n_chunks = round_up(n_in, 256) / 256;
  const int64_t begin = args.row_begin / tiles.height;
  const int64_t end = (args.row_end + tiles.height - 1) / tiles.height;
  const int64_t n_strips = (end - begin + kMaxStripTiles - 1) / kMaxStripTiles;
  TileStep<Chunk> s = {};
  s.chunk = reinterpret_cast<Chunk*>(args.scratch);
  s.height = tiles.height;
  s.record_bytes = tile_record_bytes(format);
  s.row_begin = args.row_begin;
  s.row_end = args.row_end;
  for (int64_t strip = 0; strip < n_strips; ++strip) {
    const int64_t first = begin + (end - begin) * strip / n_strips;
    s.n_tiles = begin + (end - begin) * (strip + 1) / n_strips - first;
    s.row = first * tiles.height;
    for (int64_t group = args.panel_begin; group < args.panel_end; group += 2 * kGroupPairs) {
      for (int64_t c = 0; c < n_chunks; ++c) {
        s.records = tiles.data + (c * tiles.n_tiles + first) * s.record_bytes;
        s.is_first = c == 0;
        s.is_last = c + 1 == n_chunks;
        s.k_left = n_in - 256 * c;
        walk_group(args, &s, c, group, unpack, bytes, rows);
      }
    }
  }
  _mm_sfence();  // streamed results are seen by whoever the caller wakes
}

}  // namespace amx_tile
}  // namespace
}  // namespace okibi::cpu
