// Products with Q4_K, Q5_K, Q6_K and IQ4_XS by VNNI: gemv reads the packed panel once per four
// rows, gemm stands in x16_tile256.h. Same arithmetic, same bits.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_q8b256_pack.h"
#include "cpu/kernels/avx512/x16_tile256.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

// How far gemv asks for its panel ahead of use; covers the latency of memory at full bandwidth.
constexpr int64_t kPrefetchBytes = 4096;

// ---- gemv

struct Rows256 {
  const int8_t* q;
  int64_t q_stride;
  const float* d;  // this and the following: kGemvRows rows side by side per super-block
  const int32_t* starts;
  const int16_t* sums;
};

template <class T, int kRows>
[[gnu::always_inline]] inline void add_unit(const Rows256& a, const uint8_t* head,
                                            const uint8_t* unit, int64_t b, __m512* acc) {
  constexpr int kVectors = 64 / T::kGroups;  // per group
  __m512i scales[T::kGroups / 2], mins[4], total[kRows];
  T::scales(unit, scales, mins);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int g = 0; g < T::kGroups; ++g) {
    __m512i v[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      v[r] = T::kOffset == 0 ? _mm512_setzero_si512()
                             : broadcast32(a.starts + (kGemvRows * b + r) * T::kGroups + g);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const int x = g * kVectors + j;
      const __m512i w = T::code(unit, x);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        v[r] = _mm512_dpbusd_epi32(v[r], w, broadcast32(a.q + r * a.q_stride + 256 * b + 4 * x));
      }
    }
    const __m512i scale = scale_of(scales[g / 2], g & 1);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(v[r], scale));
    }
  }
  const __m512 d = T::d(head, unit);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    acc[r] = add_scaled(acc[r], d, a.d + kGemvRows * b + r, total[r]);
    if constexpr (T::kHasMin) {
      __m512i minima = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        minima = _mm512_dpwssd_epi32(minima, mins[p],
                                     broadcast32(a.sums + (kGemvRows * b + r) * 8 + 2 * p));
      }
      acc[r] = subtract_scaled(acc[r], T::m(unit), a.d + kGemvRows * b + r, minima);
    }
  }
}

template <class T, int kRows>
void gemv_rows(const ProductArgs& args, int64_t row, const Rows256& a) {
  const int64_t n_blocks = args.w.n_in / 256;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* head = args.w.data + panel * args.w.panel_bytes;
    const uint8_t* unit = head + units_offset256<T>(args.w.n_in);
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < n_blocks; ++b, head += T::kHeadBytes, unit += T::kUnitBytes) {
      for (int64_t i = 0; i < T::kUnitBytes; i += 64) prefetch(unit + kPrefetchBytes + i);
      add_unit<T, kRows>(a, head, unit, b, acc);
    }
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

template <class T>
void gemv(const ProductArgs& args) {
  const int64_t n_blocks = args.w.n_in / 256;
  int32_t* starts = reinterpret_cast<int32_t*>(args.scratch);
  int16_t* sums = reinterpret_cast<int16_t*>(starts + kGemvRows * n_blocks * T::kGroups);
  float* d = reinterpret_cast<float*>(sums + kGemvRows * n_blocks * 8);
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    make_tables256<T::kGroups, T::kOffset, T::kHasMin ? 4 : 0>(args, row, n, kGemvRows, d, starts,
                                                               sums);
    const Rows256 a = {args.a.q + row * args.a.q_stride, args.a.q_stride, d, starts, sums};
    if (n == 1) gemv_rows<T, 1>(args, row, a);
    if (n == 2) gemv_rows<T, 2>(args, row, a);
    if (n == 3) gemv_rows<T, 3>(args, row, a);
    if (n == 4) gemv_rows<T, 4>(args, row, a);
  }
}

int64_t scratch_bytes(int64_t n_in) {
  return gemm256_scratch_bytes<Chunk256>(n_in);
}

template <class T>
LinearKernels kernels(const char* layout, const char* gemv_name, const char* gemm_name) {
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B256;
  k.panel_bytes = panel_bytes256<T>;
  k.scratch_bytes = scratch_bytes;
  k.pack = pack256<T>;
  k.unpack = unpack256<T>;
  k.gemv = gemv<T>;
  k.gemv_name = gemv_name;
  k.gemm = gemm256<T>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = kGemvRows + 1;
  return k;
}

}  // namespace

namespace avx512 {

void install_q8b256(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ4_K] = kernels<Q4_K>("q4k_x16", "avx512.gemv_q4k", "avx512.gemm_q4k");
  t[weight::kQ5_K] = kernels<Q5_K>("q5k_x16", "avx512.gemv_q5k", "avx512.gemm_q5k");
  t[weight::kQ6_K] = kernels<Q6_K>("q6k_x16", "avx512.gemv_q6k", "avx512.gemm_q6k");
  t[weight::kIQ4_XS] = kernels<IQ4_XS>("iq4_xs_x16", "avx512.gemv_iq4_xs", "avx512.gemm_iq4_xs");
}

}  // namespace avx512
}  // namespace okibi::cpu
