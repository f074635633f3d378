// Products with NVFP4 by VNNI. Its weight scales stand for 16 values, half a block of activations,
// so it has kernels of its own; gemv and gemm are the same walk, six rows at a time.
//
// A panel: per block of 32 the scale bytes of 16 rows for its first 16 values, then for the others;
// from the next multiple of 64 on, codes as in Q4_0's units (x16_q8b32.h).
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_q8b32.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

constexpr int kRowsAtOnce = 6;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kFileBytes = 36;  // of 64 values: four scale bytes, 32 bytes of codes

int64_t units_at(int64_t n_in) {
  return units_offset<NVFP4>(n_in);
}
int64_t scratch_bytes(int64_t n_in) {
  return kRowsAtOnce * round_up(n_in / 16, 16) * 4;
}

// Code of value i of a file block: byte 8s + (r & 7) of its codes, low nibble first.
int shift_of(int i) {
  return i & 8 ? 4 : 0;
}
int byte_of(int i) {
  return 4 + 8 * (i >> 4) + (i & 7);
}

void pack(const uint8_t* rows, int64_t n_rows, int64_t n_in, uint8_t* panel) {
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n_in / 64; ++b) {
      const uint8_t* block = rows + (r * (n_in / 64) + b) * kFileBytes;
      uint8_t* unit = panel + units_at(n_in) + b * Q4_0::kUnitBytes;
      for (int s = 0; s < 4; ++s) panel[64 * b + 16 * s + r] = block[s];
      for (int i = 0; i < 64; ++i) {
        const int code = (block[byte_of(i)] >> shift_of(i)) & 15;
        unit[64 * (i % 32 / 4) + 4 * r + i % 4] |= static_cast<uint8_t>(code << (i / 32 * 4));
      }
    }
  }
}

void unpack(const uint8_t* panel, int64_t n_in, int32_t row, uint8_t* file_row) {
  for (int64_t b = 0; b < n_in / 64; ++b) {
    uint8_t* block = file_row + b * kFileBytes;
    const uint8_t* unit = panel + units_at(n_in) + b * Q4_0::kUnitBytes;
    std::memset(block, 0, static_cast<size_t>(kFileBytes));
    for (int s = 0; s < 4; ++s) block[s] = panel[64 * b + 16 * s + row];
    for (int i = 0; i < 64; ++i) {
      const int code = (unit[64 * (i % 32 / 4) + 4 * row + i % 4] >> (i / 32 * 4)) & 15;
      block[byte_of(i)] |= static_cast<uint8_t>(code << shift_of(i));
    }
  }
}

// kMagicBits - 12 * (sum of 16 activations), for each 16 of n rows.
void make_starts(const ProductArgs& args, int64_t row, int64_t n, int32_t* starts, int64_t stride) {
  for (int64_t r = 0; r < n; ++r) {
    const int8_t* q = args.a.q + (row + r) * args.a.q_stride;
    for (int64_t g = 0; g < args.w.n_in / 16; ++g) {
      const __m256i wide =
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q + 16 * g)));
      const __m256i pairs = _mm256_madd_epi16(wide, _mm256_set1_epi16(1));
      __m128i sum =
          _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
      sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
      sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
      starts[r * stride + g] = kMagicBits - MXFP4::kOffset * _mm_cvtsi128_si32(sum);
    }
  }
}

struct Rows {
  const int8_t* q;
  int64_t q_stride;
  const float* d;
  int64_t d_stride;
  const int32_t* starts;
  int64_t starts_stride;
};

// The 16 values at half `g & 1` of block g / 2; `h` is the block's place in its unit.
template <int kRows, int kHalf>
[[gnu::always_inline]] inline void add_half(const Rows& a, const uint8_t* unit, int h, int64_t b,
                                            const uint8_t* scales, __m512* acc) {
  __m512i v[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
    v[r] = broadcast32(a.starts + r * a.starts_stride + 2 * b + kHalf);
#pragma GCC unroll 4
  for (int j = 4 * kHalf; j < 4 * kHalf + 4; ++j) {
    const __m512i w = MXFP4::code(unit, h, j);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      v[r] = _mm512_dpbusd_epi32(v[r], w, broadcast32(a.q + r * a.q_stride + 32 * b + 4 * j));
    }
  }
  const __m512 scale = NVFP4::scale(scales + 16 * kHalf);
  const __m512 back = _mm512_mul_ps(scale, _mm512_set1_ps(-kMagic));
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m512 scaled = _mm512_fmadd_ps(_mm512_castsi512_ps(v[r]), scale, back);
    acc[r] = _mm512_fmadd_ps(scaled, broadcast(a.d + r * a.d_stride + b), acc[r]);
  }
}

template <int kRows>
void add_rows(const ProductArgs& args, int64_t row, const Rows& a) {
  const int64_t n_in = args.w.n_in;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* scales = args.w.data + panel * args.w.panel_bytes;
    const uint8_t* unit = scales + units_at(n_in);
    __m512 acc[kRows];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < n_in / 32; b += 2, unit += Q4_0::kUnitBytes, scales += 64) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < Q4_0::kUnitBytes; i += 64) prefetch(unit + kPrefetchBytes + i);
      add_half<kRows, 0>(a, unit, 0, b, scales, acc);
      add_half<kRows, 1>(a, unit, 0, b, scales, acc);
      add_half<kRows, 0>(a, unit, 1, b + 1, scales + 32, acc);
      add_half<kRows, 1>(a, unit, 1, b + 1, scales + 32, acc);
    }
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

using RowsFn = void (*)(const ProductArgs&, int64_t, const Rows&);
constexpr RowsFn kAddRows[kRowsAtOnce] = {add_rows<1>, add_rows<2>, add_rows<3>,
                                          add_rows<4>, add_rows<5>, add_rows<6>};

void product(const ProductArgs& args) {
  const int64_t stride = round_up(args.w.n_in / 16, 16);
  int32_t* starts = reinterpret_cast<int32_t*>(args.scratch);
  for (int64_t row = args.row_begin; row < args.row_end; row += kRowsAtOnce) {
    const int64_t n = min64(kRowsAtOnce, args.row_end - row);
    make_starts(args, row, n, starts, stride);
    const Rows a = {args.a.q + row * args.a.q_stride,
                    args.a.q_stride,
                    args.a.d + row * args.a.d_stride,
                    args.a.d_stride,
                    starts,
                    stride};
    kAddRows[n - 1](args, row, a);
  }
}

}  // namespace

namespace avx512 {

void install_nvfp4(KernelTable& table) {
  LinearKernels& k = table.linear[weight::kNVFP4];
  k = {};
  k.layout = "nvfp4_x16";
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B32;
  k.panel_bytes = panel_bytes32<NVFP4>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack;
  k.unpack = unpack;
  k.gemv = k.gemm = product;
  k.gemv_name = k.gemm_name = "avx512.linear_nvfp4";
}

}  // namespace avx512
}  // namespace okibi::cpu
