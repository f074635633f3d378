// Products of many rows by AMX-BF16, for encoders of pictures: no scale stands between the sums of
// neighbouring k, so they never leave the tiles (the int8 products of linear_q8b32.cpp spend three
// quarters of their time on that).
//
// Order: strips of rows; groups of panels; chunks of 256 k; the panels; pairs of 16-row tiles. The
// tiles of a panel's chunk stay in the first-level cache and meet all rows of the strip, whose
// tiles come out of the second-level cache. Sums wait in scratch between chunks, as float32 like in
// the tiles: chunks change no bit.
//
// The tile unit needs the vector ports for next to nothing, so what else there is to do
// (Background) goes beside the products, a little at every step: finished rows go to the output,
// and the next chunk of weights becomes tiles.
#include "cpu/kernels/amx/bf16_panels.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/tile.h"

namespace okibi::cpu {
namespace {
using namespace amx_bf16;
using namespace x16;

constexpr int64_t kPanelOutputs = 32;
constexpr int64_t kSumFloats = kBf16PairRows * kPanelOutputs;
constexpr int64_t kSumStride = kPanelOutputs * 4;
// Sums of a group and the rows of a chunk share the second-level cache: 0.9 and 0.3 MiB.
constexpr int64_t kGroupPanels = 12;
constexpr int64_t kStripPairs = 18;
constexpr int kRowsPerStep = kBf16PairRows / kBf16ChunkSteps;

using Sums = float[kSumFloats];  // 32 rows by 32 outputs

struct Scratch {
  alignas(64) uint8_t tiles[2][kBf16ChunkSteps * 2 * 2 * kBf16TileBytes];  // this chunk, the next
  alignas(64) Sums results[2];  // of this pair, of the one before
  alignas(64) Sums sums[kGroupPanels][kStripPairs];
};

// Where the walk stands.
struct Place {
  int64_t pair_begin, pair_end;    // the strip
  int64_t panel_begin, panel_end;  // the group
  int64_t chunk, panel;
};

// Rows whose sums are complete, on their way to the output.
struct Finished {
  const float* sums = nullptr;
  int64_t row = 0, end = 0;
  int64_t panel = 0;
  __mmask16 masks[2] = {};
  bool stream = false;

  // Results that leave the caches before they are read again go past them (tile_walk.h).
  static bool streams(const ProductArgs& args, int64_t panel) {
    constexpr int64_t kCacheBytes = 1 << 20;
    return !args.accumulate && args.w.n_out >= (panel + 1) * kPanelOutputs &&
           args.row_end * args.w.n_out * 4 > kCacheBytes && args.out_stride % 16 == 0 &&
           (reinterpret_cast<uintptr_t>(args.out) & 63) == 0;
  }

  Finished() = default;
  Finished(const ProductArgs& args, const float* result, int64_t pair, int64_t of_panel)
      : panel(of_panel), stream(streams(args, of_panel)) {
    const int64_t first = pair * kBf16PairRows;
    row = max64(first, args.row_begin);
    end = min64(first + kBf16PairRows, args.row_end);
    sums = result + (row - first) * kPanelOutputs;
    masks[0] = panel_mask(args, 2 * panel);  // which counts panels of 16 outputs
    if (args.w.n_out > panel * kPanelOutputs + 16) masks[1] = panel_mask(args, 2 * panel + 1);
  }

  [[gnu::always_inline]] inline void write_row(const ProductArgs& args) {
    if (row >= end) return;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512 sum = _mm512_load_ps(sums + 16 * i);
      if (stream) {
        _mm512_stream_ps(args.out + row * args.out_stride + panel * kPanelOutputs + 16 * i,
                         _mm512_mul_ps(sum, _mm512_set1_ps(args.w.scale)));
      } else {
        finish(args, row, 2 * panel + i, masks[i], sum);
      }
    }
    ++row;
    sums += kPanelOutputs;
  }
};

// What is done beside the products, a step's worth at a time.
template <class P>
struct Background {
  const ProductArgs& args;
  Finished finished;
  // The next chunk: tiles by halves of a step.
  const uint8_t* packed = nullptr;
  uint8_t* tiles = nullptr;
  int64_t half = 0, n_halves = 0;
  int64_t credit = 0, price = 1;  // a half is made whenever the credit reaches the price
  // Where this pair's rows will go: asked for while they are computed.
  const float* touched = nullptr;
  int64_t touched_stride = 0;

  void set_next_chunk(const Place& next, uint8_t* to, int64_t n_steps_of_this) {
    const int64_t first = next.chunk * kBf16ChunkSteps;
    packed = args.w.data + next.panel * args.w.panel_bytes + first * P::kStepBytes;
    tiles = to;
    half = credit = 0;
    n_halves = 2 * bf16_chunk_steps(args.w.n_in, next.chunk);
    price = max64(n_steps_of_this, 1);
  }
  void make_half() {
    const uint8_t* step = packed + half / 2 * P::kStepBytes;
    P::expand(step, static_cast<int>(half % 2),
              tiles + (half / 2 * P::kParts * 2 + half % 2) * kBf16TileBytes);
    // Most often the chunk after the next stands one panel further.
    const uint8_t* further = step + args.w.panel_bytes + half % 2 * (P::kStepBytes / 2);
    for (int64_t i = 0; i < P::kStepBytes / 2; i += 64) prefetch(further + i);
    ++half;
  }
  void make_rest() {
    while (half < n_halves) make_half();
  }
  void write_rest() {
    while (finished.row < finished.end) finished.write_row(args);
  }

  [[gnu::always_inline]] inline void step() {
    for (int i = 0; i < kRowsPerStep; ++i) finished.write_row(args);
    if (touched != nullptr) {
#pragma GCC unroll 4
      for (int i = 0; i < kRowsPerStep; ++i, touched += touched_stride) {
        prefetch(touched);
        prefetch(touched + 16);
      }
    }
    credit += n_halves;
    while (credit >= price && half < n_halves) {
      credit -= price;
      make_half();
    }
  }
};

// Sums of 32 rows by 32 outputs: tiles 0-3. Rows in tiles 4 and 5, weights in 6 and 7.
inline void add_products() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// The products of a step, for weights of two parts: high by high, high rows by low weights, low
// rows by high weights; low by low lies below the last bit.
template <class P>
[[gnu::always_inline]] inline void multiply(const uint8_t* rows, const uint8_t* weights,
                                            int64_t n_steps, Background<P>& background) {
  constexpr int kRowParts = bf16_parts(P::kRows);
  for (int64_t s = 0; s < n_steps; ++s) {
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, weights, 64);
    _tile_loadd(7, weights + kBf16TileBytes, 64);
    _tile_loadd(5, rows + kBf16TileBytes, 64);
    add_products();
    if constexpr (P::kParts == 2) {
      _tile_loadd(6, weights + 2 * kBf16TileBytes, 64);
      _tile_loadd(7, weights + 3 * kBf16TileBytes, 64);
      add_products();
      _tile_loadd(6, weights, 64);
      _tile_loadd(7, weights + kBf16TileBytes, 64);
    }
    if constexpr (kRowParts == 2) {
      _tile_loadd(4, rows + 2 * kBf16TileBytes, 64);
      _tile_loadd(5, rows + 3 * kBf16TileBytes, 64);
      add_products();
    }
    background.step();
    rows += kRowParts * 2 * kBf16TileBytes;
    weights += P::kParts * 2 * kBf16TileBytes;
  }
}

inline void begin_sums(const float* sums) {
  settle_memory();
  if (sums == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kSumStride);
    _tile_loadd(1, sums + 16, kSumStride);
    _tile_loadd(2, sums + 16 * kPanelOutputs, kSumStride);
    _tile_loadd(3, sums + 16 * kPanelOutputs + 16, kSumStride);
  }
}

inline void store_sums(float* sums) {
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + 16, kSumStride);
  _tile_stored(2, sums + 16 * kPanelOutputs, kSumStride);
  _tile_stored(3, sums + 16 * kPanelOutputs + 16, kSumStride);
  settle_memory();
}

template <class P>
class Walk {
 public:
  explicit Walk(const ProductArgs& args)
      : args_(args),
        scratch_(reinterpret_cast<Scratch*>(args.scratch)),
        background_{args, {}},
        n_steps_(bf16_steps(args.w.n_in)),
        n_chunks_((n_steps_ + kBf16ChunkSteps - 1) / kBf16ChunkSteps),
        first_pair_(args.row_begin / kBf16PairRows),
        end_pair_(bf16_pairs(args.row_end)) {
    n_strips_ = (end_pair_ - first_pair_ + kStripPairs - 1) / kStripPairs;
  }

  void run() {
    Place place = at(0, args_.panel_begin);
    background_.set_next_chunk(place, scratch_->tiles[0], 1);
    background_.make_rest();
    for (int turn = 0;; turn ^= 1) {
      Place next = place;
      const bool has_next = advance(&next);
      if (has_next) {
        background_.set_next_chunk(
            next, scratch_->tiles[turn ^ 1],
            (place.pair_end - place.pair_begin) * bf16_chunk_steps(args_.w.n_in, place.chunk));
      }
      run_chunk(place, scratch_->tiles[turn]);
      background_.make_rest();
      settle_memory();
      if (!has_next) break;
      place = next;
    }
    background_.write_rest();
    _mm_sfence();  // streamed results are seen by whoever the caller wakes
  }

 private:
  // The first place of a group in a strip.
  Place at(int64_t strip, int64_t panel) {
    strip_ = strip;
    const int64_t n = end_pair_ - first_pair_;
    return {first_pair_ + n * strip / n_strips_,
            first_pair_ + n * (strip + 1) / n_strips_,
            panel,
            min64(panel + kGroupPanels, args_.panel_end),
            0,
            panel};
  }
  bool advance(Place* place) {
    if (++place->panel < place->panel_end) return true;
    place->panel = place->panel_begin;
    if (++place->chunk < n_chunks_) return true;
    if (place->panel_end < args_.panel_end) {
      *place = at(strip_, place->panel_end);
      return true;
    }
    if (strip_ + 1 == n_strips_) return false;
    *place = at(strip_ + 1, args_.panel_begin);
    return true;
  }

  // A chunk of one panel for the rows of a strip.
  void run_chunk(const Place& place, const uint8_t* tiles) {
    if constexpr (P::kIsTiles) {
      tiles = args_.w.data + place.panel * args_.w.panel_bytes +
              place.chunk * kBf16ChunkSteps * P::kStepBytes;
    }
    const bool is_last = place.chunk + 1 == n_chunks_;
    for (int64_t pair = place.pair_begin; pair < place.pair_end; ++pair) {
      const Bf16Run run =
          bf16_run(bf16_parts(P::kRows), args_.a.tiles.n_tiles, args_.w.n_in, place.chunk, pair);
      float* sums = scratch_->sums[place.panel - place.panel_begin][pair - place.pair_begin];
      background_.touched = is_last ? nullptr : sums;
      background_.touched_stride = kPanelOutputs;
      if (is_last && args_.accumulate) {
        background_.touched =
            args_.out + pair * kBf16PairRows * args_.out_stride + place.panel * kPanelOutputs;
        background_.touched_stride = args_.out_stride;
      }
      begin_sums(place.chunk == 0 ? nullptr : sums);
      multiply<P>(args_.a.tiles.data + run.offset, tiles, run.n_steps, background_);
      background_.write_rest();
      float* result = is_last ? scratch_->results[pair & 1] : sums;
      store_sums(result);
      if (is_last) background_.finished = Finished(args_, result, pair, place.panel);
    }
  }

  const ProductArgs& args_;
  Scratch* const scratch_;
  Background<P> background_;
  const int64_t n_steps_, n_chunks_;
  const int64_t first_pair_, end_pair_;
  int64_t n_strips_ = 0, strip_ = 0;
};

template <class P>
void gemm(const ProductArgs& args) {
  amx_tile::Config config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  amx_tile::load_config(config);
  Walk<P>(args).run();
  _tile_release();
}

template <class P>
int64_t panel_bytes(int64_t n_in) {
  return bf16_steps(n_in) * P::kStepBytes;
}

template <class P>
void pack(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  constexpr weight::BlockShape shape = weight::shape_of(P::kType);
  const int64_t row_bytes = n_in / shape.values * shape.bytes;
  for (int64_t r = 0; r < n_rows; ++r) P::pack(rows + r * row_bytes, n_in, r, panel);
}

int64_t scratch_bytes(int64_t) {
  return sizeof(Scratch);
}

template <class P>
void add(KernelTable& table, const char* layout, const char* name) {
  LinearKernels& k = table.linear_bf16[P::kType];
  k.layout = layout;
  k.panel_rows = kPanelOutputs;
  k.activation = P::kRows;
  k.panel_bytes = panel_bytes<P>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack<P>;
  k.gemv = k.gemm = gemm<P>;
  k.gemv_name = k.gemm_name = name;
  k.gemm_min_rows = 1;
}

}  // namespace

namespace amx {

void install_bf16(KernelTable& table) {
  add<PanelQ8_0>(table, "q8_0_x32", "amx.gemm_bf16_q8_0");
  add<PanelBF16>(table, "bf16_x32", "amx.gemm_bf16_pairs_bf16");
  add<PanelF16>(table, "f16_x32", "amx.gemm_bf16_pairs_f16");
  add<PanelF32>(table, "f32_x32", "amx.gemm_bf16_pairs_f32");
}

}  // namespace amx
}  // namespace okibi::cpu
