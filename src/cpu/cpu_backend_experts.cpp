// Mixtures of experts: routing, grouping of tokens by expert, the products.
#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

Status CpuBackend::set_experts(const ops::ExpertsConfig&) {
  CHECK(false, "not written yet");
  return ok_status();
}

void CpuBackend::moe(ops::Rows, ops::Rows, const ops::Experts&, ops::Rows) {
  CHECK(false, "not written yet");
}

}  // namespace okibi::cpu
