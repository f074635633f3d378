#include "engine/open_backend.h"

#include <sched.h>

#include <optional>
#include <thread>

#include "cpu/cpu_backend.h"
#include "cpu/roofs.h"
#include "platform/cpu_features.h"

namespace okibi::engine {

int default_thread_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

namespace {

Result<std::optional<CpuLevel>> parse_level(const std::string& name) {
  if (name.empty()) return std::optional<CpuLevel>();
  const std::optional<CpuLevel> level = cpu_level_from_name(name);
  if (level.has_value()) return level;
  return invalid_argument("CPU level \"" + name + "\": expected reference, avx2, avx512 or amx");
}

}  // namespace

Result<std::unique_ptr<ops::Backend>> open_backend(const BackendOptions& options) {
  cpu::CpuBackendOptions cpu_options;
  OKIBI_ASSIGN_OR_RETURN(cpu_options.level, parse_level(options.cpu_level));
  cpu_options.n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  cpu_options.activations = options.activations;
  return cpu::make_cpu_backend(cpu_options);
}

Result<ops::Roofs> measure_roofs(const BackendOptions& options, uint64_t buffer_bytes) {
  OKIBI_ASSIGN_OR_RETURN(std::optional<CpuLevel> requested, parse_level(options.cpu_level));
  OKIBI_ASSIGN_OR_RETURN(CpuLevel level, choose_level(requested, host_cpu()));
  const int n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  return cpu::measure_roofs(level, n_threads, buffer_bytes);
}

}  // namespace okibi::engine
