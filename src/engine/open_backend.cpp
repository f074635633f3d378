#include "engine/open_backend.h"

#include <sched.h>

#include <thread>

#include "cpu/cpu_backend.h"
#include "platform/cpu_features.h"

namespace okibi::engine {

int default_thread_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

Result<std::unique_ptr<ops::Backend>> open_backend(const BackendOptions& options) {
  cpu::CpuBackendOptions cpu_options;
  if (!options.cpu_level.empty()) {
    cpu_options.level = cpu_level_from_name(options.cpu_level);
    if (!cpu_options.level.has_value()) {
      return invalid_argument("CPU level \"" + options.cpu_level +
                              "\": expected reference, avx2, avx512 or amx");
    }
  }
  cpu_options.n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  cpu_options.f32_activations = options.f32_activations;
  return cpu::make_cpu_backend(cpu_options);
}

}  // namespace okibi::engine
