// Products of many rows by AMX-BF16, for encoders of pictures and for decisions: no scale stands
// between the sums of neighbouring k, so they never leave the tiles (the int8 products of
// linear_q8b32.cpp spend three quarters of their time on that).
//
// Order: strips of rows; groups of panels; chunks of at most 768 k; the panels, those of two
// matrices in turn; pairs of 16-row tiles. A panel's chunk meets all rows of the strip, whose tiles
// come out of the second-level cache. Sums of rows longer than a chunk wait in scratch between
// chunks, as float32 like in the tiles: chunks change no bit.
#include "cpu/kernels/amx/bf16_finish.h"
#include "cpu/kernels/amx/bf16_panels.h"
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/tile.h"

namespace okibi::cpu {
namespace {
using namespace amx_bf16;
using namespace x16;
using amx_tile::store_sums;

// Sums of a group and the rows of a chunk share the second-level cache: 0.9 MiB each.
constexpr int64_t kGroupBlocks = 216;
constexpr int64_t kStripPairs = 18;  // of rows of one part; half as many of two
// What of a panel's chunk stays in the first-level cache, beside two blocks of results: 36 KiB. All
// else is loaded past it (tileloaddt1). Were all of the chunk to stay, it would just not fit, and a
// cache that is passed through in a circle then keeps nothing of it.
constexpr int64_t kResidentSteps = 18;

struct Scratch {
  alignas(64) float results[2][kBlockFloats];  // of this block, of the one before
  alignas(64) float sums[kGroupBlocks][kBlockFloats];
  alignas(64) float firsts[kStripPairs][kBlockFloats];  // blocks of the first of two matrices
};

// Weights of the panel after this one, asked for a few lines at every step.
struct NextWeights {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  int64_t lines_per_step = 0;

  [[gnu::always_inline]] inline void ask() {
    for (int64_t i = 0; i < lines_per_step && at < end; ++i, at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
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

inline void load_rows(const uint8_t* rows) {
  _tile_stream_loadd(4, rows, 64);
  _tile_stream_loadd(5, rows + kBf16TileBytes, 64);
}

template <bool kIsResident>
inline void load_weights(const uint8_t* weights) {
  if constexpr (kIsResident) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(7, weights + kBf16TileBytes, 64);
  } else {
    _tile_stream_loadd(6, weights, 64);
    _tile_stream_loadd(7, weights + kBf16TileBytes, 64);
  }
}

// The products of a step. Of two parts: high by high, high rows by low weights, low rows by high
// weights; low by low lies below the last bit.
template <class W, bool kIsResident>
[[gnu::always_inline]] inline void multiply_step(const uint8_t* rows, const uint8_t* weights) {
  load_rows(rows);
  load_weights<kIsResident>(weights);
  add_products();
  if constexpr (W::kParts == 2) {
    load_weights<kIsResident>(weights + 2 * kBf16TileBytes);
    add_products();
    load_weights<kIsResident>(weights);
  }
  if constexpr (bf16_parts(W::kRows) == 2) {
    load_rows(rows + 2 * kBf16TileBytes);
    add_products();
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
    _tile_stream_loadd(0, sums, 64);
    _tile_stream_loadd(1, sums + kTileFloats, 64);
    _tile_stream_loadd(2, sums + 2 * kTileFloats, 64);
    _tile_stream_loadd(3, sums + 3 * kTileFloats, 64);
  }
}

template <class W, class Target>
class Walk {
 public:
  explicit Walk(const ProductArgs& args)
      : args_(args), scratch_(reinterpret_cast<Scratch*>(args.scratch)) {}

  void run() {
    constexpr int64_t kMostPairs = kStripPairs / kRowParts;
    const int64_t first = args_.row_begin / kBf16PairRows, end = bf16_pairs(args_.row_end);
    const int64_t n_strips = (end - first + kMostPairs - 1) / kMostPairs;
    for (int64_t s = 0; s < n_strips; ++s) {
      pair_begin_ = first + (end - first) * s / n_strips;
      pair_end_ = first + (end - first) * (s + 1) / n_strips;
      const int64_t n_panels = kGroupBlocks / (pair_end_ - pair_begin_) / kMatrices;
      for (int64_t p = args_.panel_begin; p < args_.panel_end; p += n_panels) {
        run_group(p, min64(p + n_panels, args_.panel_end));
      }
    }
    finishing_.write_rows(kBf16PairRows);
    _mm_sfence();  // streamed results are seen by whoever the caller wakes
  }

 private:
  static constexpr int64_t kRowParts = bf16_parts(W::kRows);
  static constexpr int64_t kMatrices = Target::kMatrices;

  // A column of blocks: of two matrices, their panels in turn.
  struct Column {
    int64_t index, panel;
    bool is_first() const { return kMatrices == 2 && index % 2 == 0; }
  };
  static Column column_of(int64_t panel_begin, int64_t index) {
    return {index, panel_begin + index / kMatrices};
  }

  const uint8_t* weights(Column column, int64_t chunk) const {
    const bool is_second = kMatrices == 2 && !column.is_first();
    return (is_second ? args_.rounded.up : args_.w.data) + column.panel * args_.w.panel_bytes +
           bf16_chunk_begin(args_.w.n_in, chunk) * step_bytes<W>();
  }

  // To be asked for over n_steps of every pair.
  NextWeights ahead(Column column, int64_t chunk, int64_t n_steps) const {
    const uint8_t* at = weights(column, chunk);
    const int64_t n_lines = bf16_chunk_steps(args_.w.n_in, chunk) * step_bytes<W>() / 64;
    const int64_t n_times = n_steps * (pair_end_ - pair_begin_);
    return {at, at + 64 * n_lines, (n_lines + n_times - 1) / n_times};
  }

  void run_group(int64_t panel_begin, int64_t panel_end) {
    const int64_t n_chunks = bf16_chunks(args_.w.n_in);
    const int64_t n_columns = (panel_end - panel_begin) * kMatrices;
    for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
      const int64_t n_steps = bf16_chunk_steps(args_.w.n_in, chunk);
      for (int64_t c = 0; c < n_columns; ++c) {
        if (c + 1 < n_columns) {
          next_ = ahead(column_of(panel_begin, c + 1), chunk, n_steps);
        } else if (chunk + 1 < n_chunks) {
          next_ = ahead(column_of(panel_begin, 0), chunk + 1, n_steps);
        } else {
          next_ = panel_end < args_.panel_end ? ahead(column_of(panel_end, 0), 0, n_steps)
                                              : NextWeights{};
        }
        run_column(column_of(panel_begin, c), chunk, chunk + 1 == n_chunks);
      }
    }
  }

  void run_column(Column column, int64_t chunk, bool is_last) {
    for (int64_t pair = pair_begin_; pair < pair_end_; ++pair) {
      float* sums = scratch_->sums[column.index * (pair_end_ - pair_begin_) + pair - pair_begin_];
      begin_sums(chunk == 0 ? nullptr : sums);
      multiply_chunk(column, chunk, pair);
      finishing_.write_rows(kBf16PairRows);
      if (!is_last) {
        store_sums(sums);
      } else if (column.is_first()) {
        store_sums(scratch_->firsts[pair - pair_begin_]);
      } else {
        finish(column.panel, pair);
      }
    }
  }

  // Rows of the block before this one leave meanwhile.
  void multiply_chunk(Column column, int64_t chunk, int64_t pair) {
    const Bf16Run run = bf16_run(kRowParts, args_.a.tiles.n_tiles, args_.w.n_in, chunk, pair);
    const uint8_t* rows = args_.a.tiles.data + run.offset;
    const uint8_t* columns = weights(column, chunk);
    const int64_t rows_per_step = (kBf16PairRows + run.n_steps - 1) / run.n_steps;
    const auto step = [&]<bool kIsResident>() __attribute__((always_inline)) {
      multiply_step<W, kIsResident>(rows, columns);
      next_.ask();
      finishing_.write_rows(rows_per_step);
      rows += kRowParts * 2 * kBf16TileBytes;
      columns += step_bytes<W>();
    };
    const int64_t n_resident = min64(run.n_steps, kResidentSteps / W::kParts);
    for (int64_t s = 0; s < n_resident; ++s) step.template operator()<true>();
    for (int64_t s = n_resident; s < run.n_steps; ++s) step.template operator()<false>();
  }

  Target target_of(int64_t panel, int64_t pair) const {
    if constexpr (kMatrices == 2) {
      return Target(args_, pair, panel, scratch_->firsts[pair - pair_begin_]);
    } else {
      return Target(args_, pair, panel);
    }
  }

  void finish(int64_t panel, int64_t pair) {
    float* block = scratch_->results[pair & 1];
    store_sums(block);
    const int64_t first = pair * kBf16PairRows;
    const int64_t end = Target::kPadsRows ? kBf16PairRows : args_.row_end - first;
    finishing_ = {block, max64(args_.row_begin - first, 0), min64(end, kBf16PairRows),
                  target_of(panel, pair)};
  }

  const ProductArgs& args_;
  Scratch* const scratch_;
  int64_t pair_begin_ = 0, pair_end_ = 0;  // the strip
  NextWeights next_;
  Finishing<Target> finishing_;
};

template <class W>
void run(const ProductArgs& args) {
  if constexpr (W::kRows == ActivationFormat::kBf16) {
    switch (args.rounded.as) {
      case RoundedOutput::As::kFloats:
        break;
      case RoundedOutput::As::kGelu:
        return Walk<W, GeluTiles>(args).run();
      case RoundedOutput::As::kSiluProduct:
        return Walk<W, SiluTiles>(args).run();
      case RoundedOutput::As::kQueries:
        return Walk<W, QueryTiles<false>>(args).run();
      case RoundedOutput::As::kKeys:
        return Walk<W, QueryTiles<true>>(args).run();
      case RoundedOutput::As::kValues:
        return Walk<W, ValueTiles>(args).run();
    }
  }
  Walk<W, FloatRows>(args).run();
}

template <class W>
void gemm(const ProductArgs& args) {
  amx_tile::Config config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  amx_tile::load_config(config);
  run<W>(args);
  _tile_release();
}

template <class W>
int64_t panel_bytes(int64_t n_in) {
  return bf16_steps(n_in) * step_bytes<W>();
}

int64_t scratch_bytes(int64_t) {
  return sizeof(Scratch);
}

template <class W>
void add(KernelTable& table, const char* layout, const char* name) {
  LinearKernels& k = table.linear_bf16[W::kType];
  k.layout = layout;
  k.panel_rows = kPanelOutputs;
  k.activation = W::kRows;
  k.panel_bytes = panel_bytes<W>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack_panel<W>;
  k.gemv = k.gemm = gemm<W>;
  k.gemv_name = k.gemm_name = name;
  k.gemm_min_rows = 1;
}

}  // namespace

namespace amx {

void install_bf16(KernelTable& table) {
  add<WeightsQ8_0>(table, "bf16_tiles", "amx.gemm_bf16_q8_0");
  add<WeightsBF16>(table, "bf16_tiles", "amx.gemm_bf16_pairs_bf16");
  add<WeightsF16>(table, "bf16_pair_tiles", "amx.gemm_bf16_pairs_f16");
  add<WeightsF32>(table, "bf16_pair_tiles", "amx.gemm_bf16_pairs_f32");
}

}  // namespace amx
}  // namespace okibi::cpu
