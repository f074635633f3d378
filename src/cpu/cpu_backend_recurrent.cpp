// Gated DeltaNet: the causal convolution and the delta rule.
#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::causal_conv(uint64_t, ops::Rows, ops::Vector, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::delta_rule(const ops::DeltaRule&, ops::Rows, ops::Rows, ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

}  // namespace okibi::cpu
