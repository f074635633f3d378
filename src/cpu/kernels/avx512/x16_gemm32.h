// gemm of the kQ8B32 types: the unpacking of a chunk of two panels (AMX has it from here), the
// scratch buffer and the walk over rows, panels and chunks of the VNNI kernels.
//
// Order of the walk: up to rows_at_once rows; two panels; chunks of 8 blocks (256 k). A chunk of
// two panels unpacks to 8 KiB and stays in the first-level cache while all rows pass over it. The
// sums of the rows (32 outputs each) wait in scratch between chunks, so their order of addition
// stays k.
#pragma once

#include "cpu/kernels/avx512/x16_q8b32.h"

namespace okibi::cpu {
namespace {
namespace x16 {

constexpr int kChunkBlocks = 8;

// A chunk of two panels. codes: vector j of block b of panel p at ((8b + j) * 2 + p) * 64. Scale s
// of block b is number kScales * b + s.
struct Chunk32 {
  alignas(64) uint8_t codes[kChunkBlocks * 16 * 64];
  alignas(64) float scale[2 * kChunkBlocks][2][16];
  float minimum[kChunkBlocks][2][16];
};

// One step of the walk: a chunk of one or two panels for n_rows rows. The pointers stand at the
// first row and the chunk's first block. Tables hold rows side by side, blocks table_stride apart.
struct Step32 {
  const Chunk32* chunk;
  int64_t n_rows;
  int n_panels;
  const int8_t* q;
  int64_t q_stride;
  const float* d;         // activation scales
  const int32_t* starts;  // kStartBits - offset * sum
  const float* dsums;     // fl(da * sum)
  int64_t table_stride;
  float* acc;  // rows kAccFloats apart
  int n_blocks;
  bool is_first, is_last;  // chunk of the row: sums start at zero, sums go to the output
  Output out;
  Ahead ahead;
};

// Parts of the scratch buffer.
struct Scratch32 {
  Chunk32* chunk;
  float* acc;
  float* d;
  int32_t* starts;
  float* dsums;
  uint8_t* rest;
};

// Tables are written 16 blocks at a time.
inline int64_t table_blocks32(int64_t n_in) {
  return round_up(n_in / 32, 16);
}
inline int64_t gemm32_scratch_bytes(int64_t n_in) {
  return int64_t{sizeof(Chunk32)} + table_rows(n_in) * (kAccFloats + 3 * table_blocks32(n_in)) * 4;
}
inline Scratch32 divide_scratch32(uint8_t* base, int64_t n_in) {
  const int64_t rows = table_rows(n_in), table = rows * table_blocks32(n_in);
  Scratch32 s;
  s.chunk = reinterpret_cast<Chunk32*>(base);
  s.acc = reinterpret_cast<float*>(base + sizeof(Chunk32));
  s.d = s.acc + rows * kAccFloats;
  s.starts = reinterpret_cast<int32_t*>(s.d + table);
  s.dsums = reinterpret_cast<float*>(s.starts + table);
  s.rest = reinterpret_cast<uint8_t*>(s.dsums + table);
  return s;
}

// What the accumulator of a dot product starts from, and how its end becomes a scaled float.
template <class T>
constexpr int32_t kStartBits = T::kConvert ? 0 : kMagicBits;
template <bool kConvert>
[[gnu::always_inline]] inline __m512 scaled(__m512i v, __m512 scale, __m512 back) {
  if constexpr (kConvert) return _mm512_mul_ps(_mm512_cvtepi32_ps(v), scale);
  return _mm512_fmadd_ps(_mm512_castsi512_ps(v), scale, back);
}

// The tables of Step32 for rows [row, row + n).
template <class T>
void make_tables32(const ProductArgs& args, int64_t row, int64_t n, const Scratch32& s) {
  const int64_t n_blocks = args.w.n_in / 32, stride = table_rows(args.w.n_in);
  for (int64_t r = 0; r < n + 15; r += 16) {
    for (int64_t b = 0; b < n_blocks; b += 16) {
      const int64_t left = n_blocks - b;
      const __mmask16 all = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
      __m512i d[16], starts[16], dsums[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const __mmask16 mask = r + i < n ? all : __mmask16(0);
        const int64_t at = (row + min64(r + i, n - 1)) * args.a.d_stride + b;
        d[i] = _mm512_maskz_loadu_epi32(mask, args.a.d + at);
        const __m512i sum = _mm512_maskz_loadu_epi32(mask, args.a.sums32 + at);
        const __m512i removed = _mm512_mullo_epi32(sum, _mm512_set1_epi32(T::kOffset));
        starts[i] = _mm512_sub_epi32(_mm512_set1_epi32(kStartBits<T>), removed);
        dsums[i] =
            _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(d[i]), _mm512_cvtepi32_ps(sum)));
      }
      store_transposed(d, s.d + b * stride + r, stride);
      store_transposed(starts, s.starts + b * stride + r, stride);
      if constexpr (T::kHasMin) store_transposed(dsums, s.dsums + b * stride + r, stride);
    }
  }
}

// The same for the rows of gemv, row by row.
// start = kMagicBits - offset * sum and dsum = fl(da * sum) for rows [row, row + n).
template <class T>
void make_row_tables32(const ProductArgs& args, int64_t row, int64_t n, int32_t* starts,
                       float* dsums, int64_t stride) {
  const int64_t n_blocks = args.w.n_in / 32;
  for (int64_t r = 0; r < n; ++r) {
    const int32_t* sums = args.a.sums32 + (row + r) * args.a.d_stride;
    const float* d = args.a.d + (row + r) * args.a.d_stride;
    for (int64_t b = 0; b < n_blocks; b += 16) {
      const int64_t left = n_blocks - b;
      const __mmask16 mask = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
      const __m512i sum = _mm512_maskz_loadu_epi32(mask, sums + b);
      const __m512i removed = _mm512_mullo_epi32(sum, _mm512_set1_epi32(T::kOffset));
      store(starts + r * stride + b, _mm512_sub_epi32(_mm512_set1_epi32(kStartBits<T>), removed));
      if constexpr (T::kHasMin) {
        const __m512 scaled =
            _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, d + b), _mm512_cvtepi32_ps(sum));
        _mm512_storeu_ps(dsums + r * stride + b, scaled);
      }
    }
  }
}

// Blocks [block, block + n) of a panel into slot p of the chunk. kSigned removes the offset, for
// tiles that multiply signed bytes.
template <class T, bool kSigned>
void unpack_chunk32(const uint8_t* panel, int64_t n_in, int64_t block, int n, int p,
                    Chunk32* chunk) {
  const uint8_t* units = panel + units_offset<T>(n_in);
  for (int b = 0; b < n; ++b) {
    const uint8_t* unit = units + (block + b) / 2 * T::kUnitBytes;
    uint8_t* to = chunk->codes + b * 1024 + p * 64;
    const __m512i offset = _mm512_set1_epi8(kSigned ? static_cast<char>(T::kOffset) : 0);
    if (((block + b) & 1) == 0) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) store(to + 128 * j, _mm512_sub_epi8(T::code(unit, 0, j), offset));
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) store(to + 128 * j, _mm512_sub_epi8(T::code(unit, 1, j), offset));
    }
    const uint8_t* scales = scales_at<T>(panel, block + b);
#pragma GCC unroll 2
    for (int i = 0; i < T::kScales; ++i) {
      _mm512_store_ps(chunk->scale[T::kScales * b + i][p], T::scale(scales + 16 * i));
    }
    if (T::kHasMin) _mm512_store_ps(chunk->minimum[b][p], load_f16(scales + 32));
  }
}

// The panels' bytes that the chunk after [block, block + kChunkBlocks) of `panel` unpacks.
template <class T>
Ahead next_chunk32(const ProductArgs& args, int64_t panel, int64_t block) {
  const int64_t n_in = args.w.n_in;
  block += kChunkBlocks;
  if (block >= n_in / 32) {
    block = 0;
    panel += 2;
  }
  Ahead ahead;
  for (int p = 0; p < 2 && panel + p < args.panel_end; ++p) {
    const uint8_t* base = args.w.data + (panel + p) * args.w.panel_bytes;
    ahead.add(base + units_offset<T>(n_in) + block / 2 * T::kUnitBytes,
              kChunkBlocks / 2 * T::kUnitBytes);
    ahead.add(scales_at<T>(base, block), kChunkBlocks / (T::kFileValues / 32) * T::kScaleBytes);
  }
  return ahead;
}

// The walk. rows(const Step32&) adds a chunk to the sums of all rows.
template <class T, class Rows>
void walk32(const ProductArgs& args, Rows rows) {
  const int64_t n_in = args.w.n_in, n_blocks = n_in / 32;
  const Scratch32 s = divide_scratch32(args.scratch, n_in);
  const int64_t at_once = rows_at_once(n_in), stride = table_rows(n_in);
  for (int64_t row = args.row_begin; row < args.row_end; row += at_once) {
    const int64_t n = min64(at_once, args.row_end - row);
    make_tables32<T>(args, row, n, s);
    for (int64_t panel = args.panel_begin; panel < args.panel_end; panel += 2) {
      const int n_panels = static_cast<int>(min64(2, args.panel_end - panel));
      const Output out = output_at(args, row, panel, n_panels);
      for (int64_t block = 0; block < n_blocks; block += kChunkBlocks) {
        const int n_chunk = static_cast<int>(min64(kChunkBlocks, n_blocks - block));
        for (int p = 0; p < n_panels; ++p) {
          unpack_chunk32<T, false>(args.w.data + (panel + p) * args.w.panel_bytes, n_in, block,
                                   n_chunk, p, s.chunk);
        }
        settle_memory();
        const Step32 step = {s.chunk,
                             n,
                             n_panels,
                             args.a.q + row * args.a.q_stride + 32 * block,
                             args.a.q_stride,
                             s.d + block * stride,
                             s.starts + block * stride,
                             s.dsums + block * stride,
                             stride,
                             s.acc,
                             n_chunk,
                             block == 0,
                             block + n_chunk == n_blocks,
                             out,
                             next_chunk32<T>(args, panel, block)};
        rows(step);
      }
    }
  }
}

}  // namespace x16
}  // namespace
}  // namespace okibi::cpu
