#include "cpu/roofs.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/clock.h"
#include "cpu/make_table.h"
#include "platform/file_map.h"
#include "platform/thread_pool.h"

namespace okibi::cpu {
namespace {

constexpr int kRepeats = 5;
constexpr double kSecondsPerRepeat = 0.03;

// Best rate of `loop` over all threads: each runs it until its share of time is over.
double best_rate(ThreadPool& pool, uint64_t (*loop)(uint64_t)) {
  if (loop == nullptr) return 0;
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<double> rates(static_cast<size_t>(pool.n_threads()), 0.0);
    pool.parallel_for(pool.n_threads(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        uint64_t ops = 0;
        const double start = seconds_now();
        double now = start;
        while (now - start < kSecondsPerRepeat) {
          ops += loop(2000);
          now = seconds_now();
        }
        rates[static_cast<size_t>(i)] = static_cast<double>(ops) / (now - start);
      }
    });
    double sum = 0;
    for (double r : rates) sum += r;
    best = std::max(best, sum);
  }
  return best;
}

double best_read_rate(ThreadPool& pool, uint64_t (*read)(const uint8_t*, uint64_t),
                      uint64_t buffer_bytes) {
  constexpr uint64_t kGrain = uint64_t{1} << 20;
  const uint64_t n = std::max<uint64_t>(buffer_bytes / kGrain, 8);
  auto buffer = MappedBuffer::allocate(n * kGrain, true);
  if (!buffer.ok() || read == nullptr) return 0;
  uint8_t* data = buffer->data();
  for (uint64_t i = 0; i < n * kGrain; i += 64) data[i] = static_cast<uint8_t>(i >> 6);
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = seconds_now();
    pool.parallel_for(static_cast<int64_t>(n), 4, [&](int64_t begin, int64_t end, int) {
      sink += read(data + static_cast<uint64_t>(begin) * kGrain,
                   static_cast<uint64_t>(end - begin) * kGrain);
    });
    best = std::max(best, static_cast<double>(n * kGrain) / (seconds_now() - start));
  }
  return best;
}

}  // namespace

ops::Roofs measure_roofs(CpuLevel level, int n_threads, uint64_t buffer_bytes) {
  const KernelTable table = make_table(level);
  ThreadPool pool(n_threads);
  ops::Roofs roofs;
  roofs.int8_name = table.roofs.int8_name == nullptr ? "" : table.roofs.int8_name;
  roofs.int8_ops_per_s = best_rate(pool, table.roofs.int8_ops);
  roofs.bf16_ops_per_s = best_rate(pool, table.roofs.bf16_ops);
  roofs.float_ops_per_s = best_rate(pool, table.roofs.float_ops);
  roofs.read_bytes_per_s = best_read_rate(pool, table.roofs.read, buffer_bytes);
  return roofs;
}

}  // namespace okibi::cpu
