// gemm with Q4_K, Q5_K, Q6_K and IQ4_XS by AMX (super_blocks.h).
#include "cpu/kernels/amx/linear.h"
#include "cpu/kernels/amx/super_blocks.h"
#include "cpu/weight_types.h"

namespace okibi::cpu {
namespace {
using namespace amx_tile;
}  // namespace

namespace amx {

void install_q8b256(KernelTable& table) {
  LinearKernels* t = table.linear;
  improve256<Q4_K>(t[weight::kQ4_K], "amx.gemm_q4k");
  improve256<Q5_K>(t[weight::kQ5_K], "amx.gemm_q5k");
  improve256<Q6_K>(t[weight::kQ6_K], "amx.gemm_q6k");
  improve256<IQ4_XS>(t[weight::kIQ4_XS], "amx.gemm_iq4_xs");
}

}  // namespace amx
}  // namespace okibi::cpu
