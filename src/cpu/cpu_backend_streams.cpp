// Residual streams and gates: elementwise operations on rows.
#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::rms_norm_groups(ops::Rows, ops::Vector, int32_t, float, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::spread_streams(ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::silu(ops::Rows, float) {
  CHECK(false, "not written yet");
}

void CpuBackend::mix_streams(ops::Rows, ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::inject_streams(ops::Rows, ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::sigmoid_mul(ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::gated_norm(ops::Rows, ops::GateKind, ops::Vector, float, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::add_gated(ops::Rows, ops::Rows, ops::Rows) {
  CHECK(false, "not written yet");
}

}  // namespace okibi::cpu
