// Puts the levels of the kernel table together; the only place that knows their order.
#include "cpu/make_table.h"

namespace okibi::cpu {

KernelTable make_table(CpuLevel level) {
  KernelTable table;
  reference::install(table);
  if (level >= CpuLevel::kAvx2) avx2::install(table);
  if (level >= CpuLevel::kAvx512) avx512::install(table);
  if (level >= CpuLevel::kAmx) amx::install(table);
  return table;
}

}  // namespace okibi::cpu
