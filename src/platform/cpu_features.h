// What the processor and the operating system let us run. Detection is a pure function of recorded
// CPUID and XCR0 values, so tests feed it machines that are not at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "okibi/status.h"

namespace okibi {

// Each level includes the ones below.
enum class CpuLevel : uint8_t { kReference, kAvx2, kAvx512, kAmx };

std::string_view cpu_level_name(CpuLevel level);  // "reference", "avx2", "avx512", "amx"
std::optional<CpuLevel> cpu_level_from_name(std::string_view name);

struct CpuidRecord {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;  // sub-leaf 0
  uint64_t xcr0 = 0;
  bool amx_permitted = false;  // the answer of the system to the request for tile state
  std::string brand;           // leaves 0x80000002..4
};

// The highest level that every recorded fact allows.
CpuLevel best_level(const CpuidRecord& record);
// Reads the host; asks the system for AMX tile state once.
const CpuidRecord& host_cpu();
// `requested`, or the host's best when none is given; an error naming both when the host lacks it.
Result<CpuLevel> choose_level(std::optional<CpuLevel> requested, const CpuidRecord& record);

}  // namespace okibi
