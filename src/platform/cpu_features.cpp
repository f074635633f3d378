// CPUID, XCR0 and the tile-state request on x86-64 Linux, and the level that they allow. Elsewhere
// every fact reads as zero and the level is reference. Knows no kernel.
#include "platform/cpu_features.h"

#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace okibi {
namespace {

constexpr std::string_view kNames[] = {"reference", "avx2", "avx512", "amx"};

constexpr bool has_all(uint64_t value, uint64_t bits) {
  return (value & bits) == bits;
}
constexpr uint32_t bit(int i) {
  return 1u << i;
}

// XCR0: which registers the system saves for a thread.
constexpr uint64_t kXmmYmm = 0x6;          // XMM, YMM
constexpr uint64_t kZmm = 0xe0;            // mask registers, ZMM 0-15, ZMM 16-31
constexpr uint64_t kTiles = (3ull << 17);  // tile configuration and data

bool allows_avx2(const CpuidRecord& r) {
  constexpr uint32_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
  constexpr uint32_t kAvx2 = bit(5);
  return has_all(r.leaf1_ecx, kFma | kOsxsave | kAvx | kF16c) && has_all(r.leaf7_ebx, kAvx2) &&
         has_all(r.xcr0, kXmmYmm);
}

bool allows_avx512(const CpuidRecord& r) {
  constexpr uint32_t kF = bit(16), kDq = bit(17), kBw = bit(30), kVl = bit(31);
  constexpr uint32_t kVnni = bit(11);
  return has_all(r.leaf7_ebx, kF | kDq | kBw | kVl) && has_all(r.leaf7_ecx, kVnni) &&
         has_all(r.xcr0, kZmm);
}

bool allows_amx(const CpuidRecord& r) {
  constexpr uint32_t kBf16 = bit(22), kTile = bit(24), kInt8 = bit(25);
  constexpr uint32_t kVbmi = bit(1), kGfni = bit(8);  // wherever AMX is, unless masked
  return has_all(r.leaf7_edx, kBf16 | kTile | kInt8) && has_all(r.leaf7_ecx, kVbmi | kGfni) &&
         has_all(r.xcr0, kTiles) && r.amx_permitted;
}

#if defined(__x86_64__)
uint64_t read_xcr0() {
  uint32_t low = 0, high = 0;
  // As bytes, so that no -mxsave is needed for this file.
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool request_tile_state() {
#if defined(__linux__)
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureTileData = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
#else
  return false;
#endif
}

std::string read_brand() {
  unsigned regs[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "";
  for (unsigned i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002u + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2],
                &regs[4 * i + 3]);
  }
  std::string brand(reinterpret_cast<const char*>(regs), sizeof regs);
  brand = brand.substr(0, brand.find('\0'));
  const size_t begin = brand.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return brand.substr(begin, brand.find_last_not_of(' ') - begin + 1);
}
#endif

CpuidRecord read_host() {
  CpuidRecord r;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) r.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    r.leaf7_ebx = b;
    r.leaf7_ecx = c;
    r.leaf7_edx = d;
  }
  if ((r.leaf1_ecx & bit(27)) != 0) r.xcr0 = read_xcr0();
  if (has_all(r.leaf7_edx, bit(24)) && has_all(r.xcr0, kTiles)) {
    r.amx_permitted = request_tile_state();
  }
  r.brand = read_brand();
#endif
  return r;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) {
  return kNames[static_cast<int>(level)];
}

std::optional<CpuLevel> cpu_level_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<CpuLevel>(i);
  }
  return std::nullopt;
}

CpuLevel best_level(const CpuidRecord& record) {
  if (!allows_avx2(record)) return CpuLevel::kReference;
  if (!allows_avx512(record)) return CpuLevel::kAvx2;
  return allows_amx(record) ? CpuLevel::kAmx : CpuLevel::kAvx512;
}

const CpuidRecord& host_cpu() {
  static const CpuidRecord record = read_host();
  return record;
}

Result<CpuLevel> choose_level(std::optional<CpuLevel> requested, const CpuidRecord& record) {
  const CpuLevel best = best_level(record);
  if (!requested.has_value()) return best;
  if (*requested > best) {
    return unsupported("CPU level " + std::string(cpu_level_name(*requested)) +
                       " was asked for, but this machine (" +
                       (record.brand.empty() ? "unknown processor" : record.brand) +
                       ") allows at most " + std::string(cpu_level_name(best)));
  }
  return *requested;
}

}  // namespace okibi
