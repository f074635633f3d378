// Products with IQ2_XXS, IQ2_XS, IQ3_XXS and IQ3_S in the layout of x16_books.h: gemv by VNNI from
// activations in the order of the codes, gemm by tiles. Same arithmetic and bits as avx512.
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/super_blocks.h"
#include "cpu/kernels/amx/x16_books_pack.h"
#include "cpu/kernels/avx512/x16_tile256.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace books;

// How far gemv asks for its panel ahead of use; covers the latency of memory at full bandwidth.
constexpr int64_t kPrefetchBytes = 4096;

// Rows of activations, from a super-block on; starts and d have kGemvRows rows side by side per
// super-block.
struct OrderedRows {
  const int8_t* q;
  int64_t q_stride;
  const float* d;
  const int32_t* starts;
};

// The codes of group g against their activations.
template <class F, int kRows>
[[gnu::always_inline]] inline void add_group(const OrderedRows& a, const uint8_t* unit, int g,
                                             const __m512i* c, __m512i* total) {
  constexpr int kParts = F::kGroups / 8, kVectors = 8 / kParts;  // scales, and codes of each
#pragma GCC unroll 2
  for (int h = 0; h < kParts; ++h) {
    const __m512i scale = F::scale(unit, kParts * g + h);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      // Two sums: the scheduler fills up with products that wait for the one before.
      __m512i v[2] = {broadcast32(a.starts + r * F::kGroups + kParts * g + h),
                      _mm512_setzero_si512()};
#pragma GCC unroll 8
      for (int j = kVectors * h; j < kVectors * (h + 1); ++j) {
        v[j & 1] =
            _mm512_dpbusd_epi32(v[j & 1], c[j], broadcast32(a.q + r * a.q_stride + 32 * g + 4 * j));
      }
      const __m512i sum = _mm512_add_epi32(v[0], v[1]);
      total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(sum, scale));
    }
  }
}

template <class F, int kRows>
[[gnu::always_inline]] inline void add_unit(const typename F::Book& book, const OrderedRows& a,
                                            const uint8_t* unit, __m512* acc) {
  __m512i total[kRows], c[2][8];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_si512();
  F::codes(book, unit, 0, c[0]);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    // The codes of the next group come ahead of these products, which would else hold them up.
    if (g < 7) {
      F::codes(book, unit, g + 1, c[(g + 1) & 1]);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) asm("" : "+v"(c[(g + 1) & 1][j]));
    }
    add_group<F, kRows>(a, unit, g, c[g & 1], total);
  }
  const __m512 d = Unpacked<F>::d(nullptr, unit);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) acc[r] = add_scaled(acc[r], d, a.d + r, total[r]);
}

template <class F, int kRows>
void gemv_rows(const ProductArgs& args, const typename F::Book& book, int64_t row,
               const OrderedRows& rows) {
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* unit = args.w.data + panel * args.w.panel_bytes;
    OrderedRows a = rows;
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < args.w.n_in / 256; ++b) {
      for (int64_t i = 0; i < F::kUnitBytes; i += 64) prefetch(unit + kPrefetchBytes + i);
      add_unit<F, kRows>(book, a, unit, acc);
      unit += F::kUnitBytes;
      a.q += 256;
      a.d += kGemvRows;
      a.starts += kGemvRows * F::kGroups;
    }
    const __mmask16 mask = panel_mask(args, panel);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish(args, row + r, panel, mask, acc[r]);
  }
}

// The activations of n rows in the order of the codes.
template <class F>
void order_rows(const ProductArgs& args, int64_t row, int64_t n, int8_t* to) {
  alignas(64) uint8_t at[64];
  for (int k = 0; k < 64; ++k) {
    const int i = k & 3, j = k >> 2 & 7;
    const int in_32 =
        F::kGroups == 8 ? 8 * i + j : 16 * (j >> 2) + (j & 3) + (i >> 1) * 4 + (i & 1) * 8;
    at[k] = static_cast<uint8_t>((k & 32) + in_32);
  }
  const __m512i order = load(at);
  for (int64_t r = 0; r < n; ++r) {
    const int8_t* from = args.a.q + (row + r) * args.a.q_stride;
    for (int64_t k = 0; k < args.w.n_in; k += 64) {
      store(to + r * args.w.n_in + k, _mm512_permutexvar_epi8(order, load(from + k)));
    }
  }
}

template <class F>
void gemv(const ProductArgs& args) {
  const int64_t n_in = args.w.n_in, n_blocks = n_in / 256;
  int8_t* q = reinterpret_cast<int8_t*>(args.scratch);
  int32_t* starts = reinterpret_cast<int32_t*>(q + kGemvRows * n_in);
  float* d = reinterpret_cast<float*>(starts + kGemvRows * n_blocks * F::kGroups);
  typename F::Book book;
  F::make(&book);
  for (int64_t row = args.row_begin; row < args.row_end; row += kGemvRows) {
    const int64_t n = min64(kGemvRows, args.row_end - row);
    make_tables256<F::kGroups, F::kOffset, 0>(args, row, n, kGemvRows, d, starts, nullptr);
    order_rows<F>(args, row, n, q);
    const OrderedRows a = {q, n_in, d, starts};
    if (n == 1) gemv_rows<F, 1>(args, book, row, a);
    if (n == 2) gemv_rows<F, 2>(args, book, row, a);
    if (n == 3) gemv_rows<F, 3>(args, book, row, a);
    if (n == 4) gemv_rows<F, 4>(args, book, row, a);
  }
}

int64_t scratch_bytes(int64_t n_in) {
  const int64_t gemv_bytes = kGemvRows * (n_in + n_in / 256 * (16 + 1) * 4);
  return max64(amx_tile::scratch_bytes256(n_in), gemv_bytes);
}

template <class F>
void replace(LinearKernels& k, const char* layout, const char* gemv_name, const char* gemm_name) {
  k.layout = layout;
  k.panel_bytes = panel_bytes256<F>;
  k.pack = pack_rows<F>;
  k.unpack = unpack_row<F>;
  k.gemv = gemv<F>;
  k.gemv_name = gemv_name;
  amx_tile::improve256<Unpacked<F>>(k, gemm_name, scratch_bytes);
}

}  // namespace

namespace amx {

void install_books(KernelTable& table) {
  LinearKernels* t = table.linear;
  replace<IQ2_XXS>(t[weight::kIQ2_XXS], "iq2_xxs_x16", "amx.gemv_iq2_xxs", "amx.gemm_iq2_xxs");
  replace<IQ2_XS>(t[weight::kIQ2_XS], "iq2_xs_x16", "amx.gemv_iq2_xs", "amx.gemm_iq2_xs");
  replace<IQ3_XXS>(t[weight::kIQ3_XXS], "iq3_xxs_x16", "amx.gemv_iq3_xxs", "amx.gemm_iq3_xxs");
  replace<IQ3_S>(t[weight::kIQ3_S], "iq3_s_x16", "amx.gemv_iq3_s", "amx.gemm_iq3_s");
}

}  // namespace amx
}  // namespace okibi::cpu
