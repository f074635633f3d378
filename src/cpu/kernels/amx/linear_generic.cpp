// gemm with the seldom-met 256-value types by AMX. gemv stays with VNNI.
// linear_books.cpp has those of them that the level lays out anew.
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/super_blocks.h"
#include "cpu/kernels/avx512/x16_generic256.h"
#include "cpu/kernels/avx512/x16_tile256.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace amx_tile;

// gemv of these types is the walk of avx512's gemm, with its tables.
int64_t scratch_bytes(int64_t n_in) {
  return max64(scratch_bytes256(n_in), gemm256_scratch_bytes<Chunk256>(n_in));
}

template <class F>
void improve(LinearKernels& k, const char* gemm_name) {
  improve256<Generic<F>>(k, gemm_name, scratch_bytes);
}

}  // namespace

namespace amx {

void install_generic(KernelTable& table) {
  LinearKernels* t = table.linear;
  improve<Q2_K>(t[weight::kQ2_K], "amx.gemm_q2k");
  improve<Q3_K>(t[weight::kQ3_K], "amx.gemm_q3k");
  improve<IQ1_S>(t[weight::kIQ1_S], "amx.gemm_iq1_s");
  improve<IQ1_M>(t[weight::kIQ1_M], "amx.gemm_iq1_m");
  improve<IQ2_S>(t[weight::kIQ2_S], "amx.gemm_iq2_s");
  improve<TQ1_0>(t[weight::kTQ1_0], "amx.gemm_tq1_0");
  improve<TQ2_0>(t[weight::kTQ2_0], "amx.gemm_tq2_0");
}

}  // namespace amx
}  // namespace okibi::cpu
