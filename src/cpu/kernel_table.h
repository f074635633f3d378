// The kernels of one instruction-set level, as function pointers. Kernels are single-threaded,
// noexcept, and cannot fail: cpu_backend.cpp checks shapes, splits the work over threads and hands
// each kernel a range. This header holds plain data only, so ISA files may include it.
//
// Numbers (docs/decisions/0002). A product with block-quantised weights is exact in int32 inside a
// block and meets the scales in a fixed order:
//   kQ8B32 formats (blocks of 32, activation scale per 32):   per block b in order
//       acc = fma(fl(float(v_b) * dw_b), da_b, acc), v_b = sum (q_w - offset) q_a, exact;
//       with a minimum: acc = fma(m_b, fl(da_b * float(sum_b)), acc) right after.
//   kQ8B256 formats (super-blocks of 256, activation scale per 256): per super-block in order
//       I = sum_g sc_g * v_g exact in int32;  acc = fma(fl(dw * da), float(I), acc);
//       with minima: J = sum_g mn_g * sum_g exact;  acc = fma(-fl(mw * da), float(J), acc).
//     dw, sc_g and the values behind v_g are those of canonical.h: dw = d except d/8 for IQ1_* and
//     IQ2_* and d/4 for IQ3_XXS; sc_g = 2s + 1 for IQ1 to IQ3; IQ1 values are 8 * grid +- 1; TQ1_0
//     and TQ2_0 have sc_g = 1 and values -1, 0, 1.
//   NVFP4 has a weight scale per 16 values, S(e) of the file format (its half included, so the
//     doubled FP4 table applies); per group of 16 in order, the activation scale being that of the
//     block of 32 around it:  acc = fma(float(v_16) * S, da_b, acc). The product is exact.
//   Q1_0 and Q2_0 repeat their scale for each block of 32 inside their longer blocks.
//   kF32 formats: acc = fma(x_k, w_k, acc) for k = 0, 1, 2, ... in order.
//   kBf16 formats (amx only, for rows of pictures): factors rounded to bfloat16, or as sums of two
//     such numbers (kBf16Pair), 32 k at a time as the unit adds them: that of the pairs of k.
// acc starts at +0. The result is fl(acc * scale) when the tensor has a scale other than 1, and an
// accumulating product then adds it to the output with one more rounding.
// avx2, avx512 and amx follow this to the bit; reference does the same without fused operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace okibi::cpu {

// kBf16 and kBf16Pair exist in tile order only (cpu/bf16_tiles.h).
enum class ActivationFormat : uint8_t { kF32, kQ8B32, kQ8B256, kBf16, kBf16Pair };
constexpr int kNActivationFormats = 5;

// Activations once more, in the order in which tile kernels read them: tiles of `height` rows, rows
// past the last zero. Record (chunk of 256 k, tile) stands at (chunk * n_tiles + tile) records and
// holds kTileHeight rows, of which `height` count:
//   kQ8B32:  q [8 blocks][row][32], d [block][row], fl(d * float(sum)) [block][row]
//   kQ8B256: q [4 runs][row][64], d [row], sums over 32 (int16) [row][8], sums over 16 [row][16]
struct ActivationTiles {
  const uint8_t* data = nullptr;
  int64_t height = 0, n_tiles = 0;
};
constexpr int64_t kTileHeight = 32;
constexpr int64_t tile_count(int64_t n_rows) {
  return (n_rows + kTileHeight - 1) / kTileHeight;
}
// Tiles of one product are equally high, so that one configuration serves all of them.
constexpr int64_t tile_height(int64_t n_rows) {
  return (n_rows + tile_count(n_rows) - 1) / tile_count(n_rows);
}
constexpr int64_t tile_record_bytes(ActivationFormat format) {
  return kTileHeight * (format == ActivationFormat::kQ8B32 ? 8 * (32 + 4 + 4) : 256 + 4 + 16 + 32);
}
constexpr int64_t tiles_bytes(ActivationFormat format, int64_t n_rows, int64_t n_in) {
  return (n_in + 255) / 256 * tile_count(n_rows) * tile_record_bytes(format);
}

// Activations of a step in the format that a weight layout asks for. Rows lie `q_stride` bytes
// (kF32: `x_stride` floats) apart; n_in is the row length.
//   kQ8B32:  d (n_in / 32) scales, sums32 (n_in / 32) sums of q over each block
//   kQ8B256: d (n_in / 256) scales, sums16 (n_in / 16) sums of q over each 16 values
// q is within -127..127, d = max|x| / 127, q = round-half-even(x * (127 / max|x|)); a block whose
// max|x| is below 1e-30 has d = 0 and q = 0. All rows are 64-byte aligned.
struct Activations {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int8_t* q = nullptr;
  int64_t q_stride = 0;
  const float* d = nullptr;
  int64_t d_stride = 0;
  const int32_t* sums32 = nullptr;  // rows d_stride apart
  const int16_t* sums16 = nullptr;
  int64_t sums16_stride = 0;
  ActivationTiles tiles;  // for gemm, where the level has make_tiles
};

// A packed matrix: ceil(n_out / panel_rows) panels of panel_bytes(n_in), one after another, rows
// past n_out zero. `data` is 64-byte aligned and readable 64 bytes past its end.
struct PackedMatrix {
  const uint8_t* data = nullptr;
  int64_t n_in = 0, n_out = 0;
  int64_t panel_bytes = 0;
  float scale = 1.0f;
};

// Results that go on as rounded factors of other products: result + bias as bfloat16 tiles instead
// of floats. Of kernels whose activations are kBf16.
struct RoundedOutput {
  enum class As : uint8_t {
    kFloats,       // not rounded
    kGelu,         // gelu_tanh of it, as kBf16 activations (cpu/bf16_tiles.h)
    kSiluProduct,  // silu of it times the product with `up`, without bias, likewise
    kQueries,
    kKeys,
    kValues,  // of the heads of a view, one after another (cpu/view_attend.h)
  };
  As as = As::kFloats;
  uint8_t* tiles = nullptr;
  const float* bias = nullptr;  // (n_out)
  int64_t n_pairs = 0;          // of all rows
  const uint8_t* up = nullptr;  // panels of a second matrix, of the shape and layout of the first
  float up_scale = 1.0f;
};

// Computes outputs [panel_begin * panel_rows, min(n_out, panel_end * panel_rows)) of rows
// [row_begin, row_end):  out[r * out_stride + o] = W a_r, or += when `accumulate`.
struct ProductArgs {
  PackedMatrix w;
  Activations a;
  int64_t panel_begin = 0, panel_end = 0;
  int64_t row_begin = 0, row_end = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;
  RoundedOutput rounded;
  // Per-thread scratch of at least `scratch_bytes(n_in)` of the layout, 64-byte aligned.
  uint8_t* scratch = nullptr;
};

// One weight type's layout and every kernel that reads it. gemv and gemm give equal bits; gemv is
// used for few rows, gemm from `gemm_min_rows` on.
struct LinearKernels {
  const char* layout = nullptr;  // "q4k_x16"; null: the level has nothing for the type
  int32_t panel_rows = 0;
  ActivationFormat activation = ActivationFormat::kF32;
  int64_t (*panel_bytes)(int64_t n_in) = nullptr;
  int64_t (*scratch_bytes)(int64_t n_in) = nullptr;  // null: none
  // Packs n_rows <= panel_rows file rows (row_bytes apart, consecutive) into one zeroed panel.
  void (*pack)(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) = nullptr;
  // The inverse for one row: writes the row_bytes(type, n_in) file bytes of row `row` (in
  // [0, panel_rows)) of a panel. A token table that is also the output matrix is kept only packed,
  // and an embedding is read back through this.
  void (*unpack)(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) = nullptr;
  void (*gemv)(const ProductArgs& args) = nullptr;
  const char* gemv_name = nullptr;  // "avx512.gemv_q4k"
  void (*gemm)(const ProductArgs& args) = nullptr;
  const char* gemm_name = nullptr;
  int32_t gemm_min_rows = 2;
};

// Consecutive keys and values of one head, rows in the stored type back to back, readable 64 bytes
// past their end.
struct KvRun {
  const uint8_t* k = nullptr;
  const uint8_t* v = nullptr;
  int32_t n = 0;
};

// One partition of at most kAttendPartition list entries, seen by every query head that reads one
// K/V head and by several query tokens at once: the entries are converted once, while each query
// keeps its own maximum, sums and order, so its bits do not depend on who shares the call.
//   s_j = scale * dot(q, k_j), the dot in 16 lanes (lane = index mod 16), the lanes added as a tree
//   of neighbours: (0+1), (2+3), ... then ((0+1)+(2+3)), ...
//   m = exact maximum;  p_j = exp(s_j - m);  l = sum p_j in 16 lanes (lane = j mod 16), same tree
//   o = fma(p_j, v_j, o) for j in order, from zero
// Query t sees the first n_keys[t] >= 1 entries. Its record is attend_record_floats(v_dim) floats:
// m, l, padding to 16, then o.
struct AttendArgs {
  const float* q = nullptr;  // (n_queries, n_heads, k_dim)
  int64_t q_query_stride = 0, q_head_stride = 0;
  int32_t n_queries = 0, n_heads = 0;
  int32_t k_dim = 0, v_dim = 0;
  float scale = 1.0f;
  const KvRun* runs = nullptr;
  int32_t n_runs = 0;
  const int32_t* n_keys = nullptr;  // (n_queries)
  float* records = nullptr;         // record of (query t, head h) at t * query + h * head stride
  int64_t record_query_stride = 0, record_head_stride = 0;
  float* scratch = nullptr;  // attend_scratch_floats(n_queries * n_heads, ...), 64-byte aligned
};

constexpr int32_t kAttendPartition = 256;
// Value rows that are converted at a time for a tile of queries.
constexpr int32_t kAttendValueRows = 32;
constexpr int64_t round_up_16(int64_t n) {
  return (n + 15) / 16 * 16;
}
constexpr int64_t attend_record_floats(int64_t v_dim) {
  return 16 + round_up_16(v_dim);
}
// Scores and padded query of each row, 16 transposed keys, a chunk of values.
constexpr int64_t attend_scratch_floats(int64_t n_rows, int64_t k_dim, int64_t v_dim) {
  return n_rows * (kAttendPartition + round_up_16(k_dim)) + 16 * round_up_16(k_dim) +
         kAttendValueRows * round_up_16(v_dim);
}

constexpr int32_t kMaxConvTaps = 16;

struct ShortConvArgs {
  const float* bcx = nullptr;  // (n_rows, 3d), rows bcx_stride apart
  int64_t bcx_stride = 0;
  int32_t n_rows = 0;
  int32_t d = 0;  // channels of the whole row
  int32_t channel_begin = 0, channel_end = 0;
  int32_t n_taps = 0;               // 1 .. kMaxConvTaps
  const float* kernel = nullptr;    // (d, n_taps)
  const float* state_in = nullptr;  // (n_taps - 1, d)
  float* state_out = nullptr;       // may be state_in
  float* out = nullptr;             // (n_rows, d), rows out_stride apart
  int64_t out_stride = 0;
};

// K/V storage types, as ops::KvType numbers them.
constexpr int kKvF32 = 0, kKvF16 = 1, kKvQ8_0 = 2, kNKvTypes = 3;

// Loops that do nothing but reach a limit of the processor, for measuring roofs.
struct RoofKernels {
  // Independent accumulators of the level's int8 instruction (float: fused multiply-adds); returns
  // the operations done, two per multiply-add.
  uint64_t (*int8_ops)(uint64_t n_iterations) = nullptr;
  const char* int8_name = nullptr;
  uint64_t (*float_ops)(uint64_t n_iterations) = nullptr;
  // The level's bfloat16 instruction; null: it has none.
  uint64_t (*bf16_ops)(uint64_t n_iterations) = nullptr;
  // Reads n bytes (a multiple of 512) once; the return value depends on all of them.
  uint64_t (*read)(const uint8_t* data, uint64_t n) = nullptr;
};

struct ViewAttendKernels;  // cpu/view_attend.h

constexpr int kMaxDTypes = 48;

struct KernelTable {
  const char* level = nullptr;
  // By DType number. `linear` is the normal mode; `linear_f32` keeps activations in float32 and
  // dequantises weights exactly (--activations f32).
  LinearKernels linear[kMaxDTypes];
  LinearKernels linear_f32[kMaxDTypes];
  // For weights whose products may round (ops::WeightSource::may_round); empty: `linear` serves.
  LinearKernels linear_bf16[kMaxDTypes];

  // One row to the quantised formats above; n a multiple of 32 (256).
  void (*quantize_q8b32)(const float* x, int64_t n, int8_t* q, float* d, int32_t* sums32) = nullptr;
  void (*quantize_q8b256)(const float* x, int64_t n, int8_t* q, float* d,
                          int16_t* sums16) = nullptr;

  // Tiles [tile_begin, tile_end) of `a` (its q, d and sums; n_rows, n_in) into a.tiles.data. Null:
  // gemm reads rows.
  void (*make_tiles)(const Activations& a, ActivationFormat format, int64_t n_rows, int64_t n_in,
                     int64_t tile_begin, int64_t tile_end, uint8_t* data) = nullptr;

  // Row `row` of activations in tile order (cpu/bf16_tiles.h) from n_in floats; zero where x is
  // null. There where linear_bf16 is.
  void (*round_row)(const float* x, int64_t n_in, int64_t n_parts, int64_t n_pairs, int64_t row,
                    uint8_t* tiles) = nullptr;

  // One row each; n any positive number.
  void (*rms_norm)(const float* x, const float* gamma, int64_t n, float eps, float* out) = nullptr;
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out) = nullptr;
  // x += bias unless that is null, then out = (x - mean) / sqrt(variance + eps) * gamma + beta;
  // both sums in 16 lanes and their tree. out may be x.
  void (*layer_norm)(float* x, const float* bias, const float* gamma, const float* beta, int64_t n,
                     float eps, float* out) = nullptr;
  // x = gelu(x + bias).
  void (*gelu_tanh)(float* x, const float* bias, int64_t n) = nullptr;
  void (*gelu_erf)(float* x, const float* bias, int64_t n) = nullptr;
  // For attend_view where factors may be rounded; null: the level has none.
  const ViewAttendKernels* view_attend = nullptr;
  // Rotates n_heads heads in place. cos_sin: n_rot / 2 cosines, then n_rot / 2 sines.
  void (*rope_adjacent)(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot,
                        const float* cos_sin) = nullptr;
  void (*rope_half)(float* x, int32_t n_heads, int32_t head_dim, int32_t n_rot,
                    const float* cos_sin) = nullptr;
  void (*short_conv)(const ShortConvArgs& args) = nullptr;

  RoofKernels roofs;

  // By K/V type. store: one head's row of `n` floats to its stored form (q8_0: blocks of 32 as in
  // the file format, n a multiple of 32).
  void (*kv_store[kNKvTypes])(const float* x, int64_t n, uint8_t* dst) = {};
  void (*attend[kNKvTypes])(const AttendArgs& args) = {};
  const char* attend_name[kNKvTypes] = {};
  // total = total merged with the next partition's record: with m = max of both, l and o are scaled
  // by exp(m_total - m) and the part's by exp(m_part - m), then added.
  void (*attend_merge)(float* total, const float* part, int32_t v_dim) = nullptr;
  // out = o / l.
  void (*attend_finish)(const float* total, int32_t v_dim, float* out) = nullptr;
};

// Each level overwrites what it improves; call them in order.
namespace reference {
void install(KernelTable& table);
}
namespace avx2 {
void install(KernelTable& table);
}
namespace avx512 {
void install(KernelTable& table);
}
namespace amx {
void install(KernelTable& table);
}

}  // namespace okibi::cpu
