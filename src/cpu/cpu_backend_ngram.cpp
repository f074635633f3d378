// Hashed n-grams: which rows a token wants, reading them, mixing them into the streams.
#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

Result<ops::NgramTable> CpuBackend::add_ngram_table(const ops::NgramTableSource&) {
  CHECK(false, "not written yet");
  return ops::NgramTable{};
}

void CpuBackend::ngram_prefetch(ops::NgramTable) {
  CHECK(false, "not written yet");
}

void CpuBackend::ngram_embed(ops::NgramTable, ops::Rows) {
  CHECK(false, "not written yet");
}

}  // namespace okibi::cpu
