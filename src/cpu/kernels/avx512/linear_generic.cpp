// Products with the seldom-met 256-value types: unpacked super-block by super-block to the common
// form (x16_generic256.h), then as the others. gemv is gemm with few rows.
#include "cpu/kernels/avx512/linear.h"
#include "cpu/kernels/avx512/x16_generic256.h"
#include "cpu/kernels/avx512/x16_tile256.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace x16;

template <class F>
LinearKernels kernels(const char* layout, const char* name) {
  using T = Generic<F>;
  LinearKernels k;
  k.layout = layout;
  k.panel_rows = kPanelRows;
  k.activation = ActivationFormat::kQ8B256;
  k.panel_bytes = panel_bytes256<T>;
  k.scratch_bytes = gemm256_scratch_bytes<Chunk256>;
  k.pack = pack_blocks<T>;
  k.unpack = unpack_blocks<T>;
  k.gemv = k.gemm = gemm256<T>;
  k.gemv_name = k.gemm_name = name;
  return k;
}

}  // namespace

namespace avx512 {

void install_generic(KernelTable& table) {
  LinearKernels* t = table.linear;
  t[weight::kQ2_K] = kernels<Q2_K>("q2k_blocks16", "avx512.linear_q2k");
  t[weight::kQ3_K] = kernels<Q3_K>("q3k_blocks16", "avx512.linear_q3k");
  t[weight::kIQ1_S] = kernels<IQ1_S>("iq1_s_blocks16", "avx512.linear_iq1_s");
  t[weight::kIQ1_M] = kernels<IQ1_M>("iq1_m_blocks16", "avx512.linear_iq1_m");
  t[weight::kIQ2_XXS] = kernels<IQ2_XXS>("iq2_xxs_blocks16", "avx512.linear_iq2_xxs");
  t[weight::kIQ2_XS] = kernels<IQ2_XS>("iq2_xs_blocks16", "avx512.linear_iq2_xs");
  t[weight::kIQ2_S] = kernels<IQ2_S>("iq2_s_blocks16", "avx512.linear_iq2_s");
  t[weight::kIQ3_XXS] = kernels<IQ3_XXS>("iq3_xxs_blocks16", "avx512.linear_iq3_xxs");
  t[weight::kIQ3_S] = kernels<IQ3_S>("iq3_s_blocks16", "avx512.linear_iq3_s");
  t[weight::kTQ1_0] = kernels<TQ1_0>("tq1_0_blocks16", "avx512.linear_tq1_0");
  t[weight::kTQ2_0] = kernels<TQ2_0>("tq2_0_blocks16", "avx512.linear_tq2_0");
}

}  // namespace avx512
}  // namespace okibi::cpu
