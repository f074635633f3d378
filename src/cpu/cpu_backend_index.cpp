// Sparse attention: pooled index keys, the selection of blocks, attention over them.
#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::index_append(const ops::IndexKeys&, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::select_blocks(int32_t, ops::Rows) {
  CHECK(false, "not written yet");
}

void CpuBackend::attend_selected(int32_t, ops::Rows, int32_t, float, ops::Rows) {
  CHECK(false, "not written yet");
}

std::vector<uint32_t> CpuBackend::selected_positions(int32_t, uint32_t) const {
  CHECK(false, "not written yet");
  return {};
}

void CpuBackend::fill_random(const ops::SequenceSpan&, uint64_t) {
  CHECK(false, "not written yet");
}

}  // namespace okibi::cpu
