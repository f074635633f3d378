// gemm of the kQ8B256 types by VNNI: scratch, tables of the activations and the walk. It goes as in
// x16_gemm32.h, with one super-block of two panels as the chunk.
#pragma once

#include "cpu/kernels/avx512/x16_q8b256.h"

namespace okibi::cpu {
namespace {
namespace x16 {

// One step of the walk: a super-block of one or two panels for n_rows rows. The pointers stand at
// the first row and at the super-block; in the tables rows lie side by side.
template <class Chunk>
struct Step256 {
  const Chunk* chunk;
  int64_t n_rows;
  int n_panels;
  const int8_t* q;
  int64_t q_stride;
  const float* d;         // activation scale per row
  const int32_t* starts;  // kGroups per row: -offset * sum of the group
  const int16_t* sums;    // 2 * kMinPairs per row: of each 32 (16) values
  float* acc;             // rows kAccFloats apart
  bool is_first, is_last;
  Output out;
  Ahead ahead;
};

// Scratch: the chunk, sums of the outputs, then the tables, super-block by super-block.
template <class Chunk>
struct Scratch256 {
  Chunk* chunk;
  float* acc;
  float* d;
  int32_t* starts;
  int16_t* sums;
};

template <class Chunk>
int64_t gemm256_scratch_bytes(int64_t n_in) {
  return int64_t{sizeof(Chunk)} +
         table_rows(n_in) * (kAccFloats * 4 + n_in / 256 * (4 + 16 * 4 + 16 * 2));
}
template <class Chunk>
Scratch256<Chunk> divide_scratch256(uint8_t* base, int64_t n_in) {
  const int64_t rows = table_rows(n_in), n_blocks = n_in / 256;
  Scratch256<Chunk> s;
  s.chunk = reinterpret_cast<Chunk*>(base);
  s.acc = reinterpret_cast<float*>(base + sizeof(Chunk));
  s.starts = reinterpret_cast<int32_t*>(s.acc + rows * kAccFloats);
  s.sums = reinterpret_cast<int16_t*>(s.starts + rows * n_blocks * 16);
  s.d = reinterpret_cast<float*>(s.sums + rows * n_blocks * 16);
  return s;
}

// The tables of rows [row, row + n), `stride` rows from one super-block to the next.
template <int kGroups, int kOffset, int kMinPairs>
void make_tables256(const ProductArgs& args, int64_t row, int64_t n, int64_t stride, float* d,
                    int32_t* starts, int16_t* sums) {
  const __m512i factor = _mm512_set1_epi32(-kOffset);
  for (int64_t r = 0; r < n; ++r) {
    const int16_t* from = args.a.sums16 + (row + r) * args.a.sums16_stride;
    const float* scales = args.a.d + (row + r) * args.a.d_stride;
    for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
      const int64_t at = b * stride + r;
      const __m256i by16 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 16 * b));
      const __m256i by32 = _mm256_madd_epi16(by16, _mm256_set1_epi16(1));
      d[at] = scales[b];
      if constexpr (kOffset != 0 && kGroups == 16) {
        store(starts + 16 * at, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(by16), factor));
      }
      if constexpr (kOffset != 0 && kGroups == 8) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(starts + 8 * at),
                            _mm256_mullo_epi32(by32, _mm512_castsi512_si256(factor)));
      }
      if constexpr (kMinPairs == 4) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 8 * at), _mm256_cvtepi32_epi16(by32));
      }
      if constexpr (kMinPairs == 8) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 16 * at), by16);
      }
    }
  }
}

// The packed bytes of the super-block after `block` of two panels.
template <class T>
Ahead next_chunk256(const ProductArgs& args, int64_t panel, int64_t block) {
  if (++block >= args.w.n_in / 256) {
    block = 0;
    panel += 2;
  }
  Ahead ahead;
  for (int p = 0; p < 2 && panel + p < args.panel_end; ++p) {
    const uint8_t* base = args.w.data + (panel + p) * args.w.panel_bytes;
    ahead.add(base + units_offset256<T>(args.w.n_in) + block * T::kUnitBytes, T::kUnitBytes);
  }
  return ahead;
}

// The walk. unpack(head, unit, p, chunk) fills slot p of the chunk; rows(step) adds it to the sums.
template <class T, class Chunk, class Unpack, class Rows>
void walk256(const ProductArgs& args, Unpack unpack, Rows rows) {
  const int64_t n_in = args.w.n_in, n_blocks = n_in / 256;
  const Scratch256<Chunk> s = divide_scratch256<Chunk>(args.scratch, n_in);
  const int64_t at_once = rows_at_once(n_in), stride = table_rows(n_in);
  for (int64_t row = args.row_begin; row < args.row_end; row += at_once) {
    const int64_t n = min64(at_once, args.row_end - row);
    make_tables256<T::kGroups, T::kOffset, T::kHasMin ? T::kMinPairs : 0>(args, row, n, stride, s.d,
                                                                          s.starts, s.sums);
    for (int64_t panel = args.panel_begin; panel < args.panel_end; panel += 2) {
      const int n_panels = static_cast<int>(min64(2, args.panel_end - panel));
      const Output out = output_at(args, row, panel, n_panels);
      for (int64_t b = 0; b < n_blocks; ++b) {
        for (int p = 0; p < n_panels; ++p) {
          const uint8_t* base = args.w.data + (panel + p) * args.w.panel_bytes;
          unpack(base + b * T::kHeadBytes, base + units_offset256<T>(n_in) + b * T::kUnitBytes, p,
                 s.chunk);
        }
        settle_memory();
        const Step256<Chunk> step = {s.chunk,
                                     n,
                                     n_panels,
                                     args.a.q + row * args.a.q_stride + 256 * b,
                                     args.a.q_stride,
                                     s.d + b * stride,
                                     s.starts + b * stride * T::kGroups,
                                     s.sums + b * stride * 2 * T::kMinPairs,
                                     s.acc,
                                     b == 0,
                                     b + 1 == n_blocks,
                                     out,
                                     next_chunk256<T>(args, panel, b)};
        rows(step);
      }
    }
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
