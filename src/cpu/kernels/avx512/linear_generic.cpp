// Products with the seldom-met 256-value types: gemv takes the file's blocks row by row
// (x16_rows256.h); gemm unpacks them super-block by super-block to the common form
// (x16_generic256.h) and goes on as for the others.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_rows256.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

template <class F>
LinearKernels kernels(const char* layout, const char* gemv_name, const char* gemm_name) {
  using T = Generic<F>;
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B256;
  k.panel_bytes = panel_bytes256<T>;
  k.scratch_bytes = gemm256_scratch_bytes<Chunk256>;
  k.pack = pack_blocks<T>;
  k.unpack = unpack_blocks<T>;
  k.gemv = gemv_by_row<F>;
  k.gemv_name = gemv_name;
  k.gemm = gemm256<T>;
  k.gemm_name = gemm_name;
  k.gemm_min_rows = kGemvRows + 1;
  return k;
}

}  // namespace

namespace avx512 {

void install_generic(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ2_K] = kernels<Q2_K>("q2k_blocks16", "avx512.gemv_q2k", "avx512.gemm_q2k");
  t[weight::kQ3_K] = kernels<Q3_K>("q3k_blocks16", "avx512.gemv_q3k", "avx512.gemm_q3k");
  t[weight::kIQ1_S] = kernels<IQ1_S>("iq1_s_blocks16", "avx512.gemv_iq1_s", "avx512.gemm_iq1_s");
  t[weight::kIQ1_M] = kernels<IQ1_M>("iq1_m_blocks16", "avx512.gemv_iq1_m", "avx512.gemm_iq1_m");
  t[weight::kIQ2_XXS] =
      kernels<IQ2_XXS>("iq2_xxs_blocks16", "avx512.gemv_iq2_xxs", "avx512.gemm_iq2_xxs");
  t[weight::kIQ2_XS] =
      kernels<IQ2_XS>("iq2_xs_blocks16", "avx512.gemv_iq2_xs", "avx512.gemm_iq2_xs");
  t[weight::kIQ2_S] = kernels<IQ2_S>("iq2_s_blocks16", "avx512.gemv_iq2_s", "avx512.gemm_iq2_s");
  t[weight::kIQ3_XXS] =
      kernels<IQ3_XXS>("iq3_xxs_blocks16", "avx512.gemv_iq3_xxs", "avx512.gemm_iq3_xxs");
  t[weight::kIQ3_S] = kernels<IQ3_S>("iq3_s_blocks16", "avx512.gemv_iq3_s", "avx512.gemm_iq3_s");
  t[weight::kTQ1_0] = kernels<TQ1_0>("tq1_0_blocks16", "avx512.gemv_tq1_0", "avx512.gemm_tq1_0");
  t[weight::kTQ2_0] = kernels<TQ2_0>("tq2_0_blocks16", "avx512.gemv_tq2_0", "avx512.gemm_tq2_0");
}

}  // namespace avx512
}  // namespace okibi::cpu
