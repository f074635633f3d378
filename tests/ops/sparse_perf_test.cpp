// Times of sparse attention at the shape of the real model, under --perf only: one decoded row and
// a step of 512 rows, on random context; "alike" rows resemble each other as those of a text do.
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/clock.h"
#include "cpu/roofs.h"
#include "ops/sparse_fixture.h"

namespace okibi::ops_test {
namespace {

const SparseShape kReal{.n_heads = 24,
                        .n_kv_heads = 2,
                        .head_dim = 256,
                        .index_heads = 4,
                        .index = {.dim = 128, .block_tokens = 4, .budget = 2048}};

struct Times {
  double select = 1e9, attend = 1e9;
};

// Best of some repetitions of one step with n_rows rows behind n_past positions.
Times time_step(SparseLayer& l, const std::vector<ops::PageId>& pages, uint32_t n_past,
                uint32_t n_rows, int n_repeats) {
  Times t;
  run_step(*l.backend, Step({{.n_past = n_past, .n_rows = n_rows, .pages = pages}}), [&] {
    l.backend->kv_append(1, l.k, l.v);
    l.backend->index_append(l.keys, l.index_k);
    for (int i = 0; i < n_repeats; ++i) {
      double start = seconds_now();
      l.backend->select_blocks(1, l.index_q);
      t.select = std::min(t.select, seconds_now() - start);
      start = seconds_now();
      l.backend->attend_selected(1, l.q, kReal.n_heads, 0.0625f, l.out);
      t.attend = std::min(t.attend, seconds_now() - start);
    }
  });
  return t;
}

// Rows of a step: `shared` of each index query is common to all of them.
void write_step(SparseLayer& l, uint32_t n, float shared) {
  const auto rows = [&](ops::Rows r, uint32_t seed) {
    write_rows(*l.backend, r, random_floats(n * r.cols, seed));
  };
  rows(l.q, 1);
  rows(l.k, 2);
  rows(l.v, 3);
  rows(l.index_k, 4);
  std::vector<float> q = random_floats(n * l.index_q.cols, 5);
  const std::vector<float> base = random_floats(l.index_q.cols, 6);
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = shared * base[i % base.size()] + std::sqrt(1.0f - shared * shared) * q[i];
  }
  write_rows(*l.backend, l.index_q, q);
}

void report(const char* what, uint32_t n_past, uint32_t n, const Times& t, double read_roof,
            double float_roof) {
  const double blocks = n_past / 4.0;
  const double select_flop = 2.0 * n * blocks * 4 * 128;
  const double attend_flop = 2.0 * n * 2050.0 * 24 * 512;
  std::printf(
      "%-22s %8u past %4u rows: select %9.3f ms (%6.2f GB/s of %.1f; %6.1f GFLOP/s, %3.0f%%), "
      "attend %8.3f ms (%6.1f GFLOP/s, %3.0f%%)\n",
      what, n_past, n, t.select * 1e3, n == 1 ? blocks * 512 / t.select * 1e-9 : 0.0, read_roof,
      select_flop / t.select * 1e-9, 100 * select_flop / t.select * 1e-9 / float_roof,
      t.attend * 1e3, attend_flop / t.attend * 1e-9,
      100 * attend_flop / t.attend * 1e-9 / float_roof);
  std::fflush(stdout);
}

TEST(SparsePerf, RealShape) {
  if (!perf_enabled) GTEST_SKIP() << "times, with --perf";
  const int n_threads = 2;
  // The machine may be shared: the best of several.
  ops::Roofs roofs;
  for (int i = 0; i < 6; ++i) {
    const ops::Roofs r = cpu::measure_roofs(best_level(host_cpu()), n_threads, 512u << 20);
    roofs.read_bytes_per_s = std::max(roofs.read_bytes_per_s, r.read_bytes_per_s);
    roofs.float_ops_per_s = std::max(roofs.float_ops_per_s, r.float_ops_per_s);
  }
  std::printf("roofs: read %.1f GB/s, float %.0f GFLOP/s\n", roofs.read_bytes_per_s * 1e-9,
              roofs.float_ops_per_s * 1e-9);
  for (const uint32_t n_past : {65536u, 262144u, 1048576u}) {
    SparseOptions o{.level = best_level(host_cpu()),
                    .type = ops::KvType::kF16,
                    .n_threads = n_threads,
                    .switches = {},
                    .max_rows = 512,
                    .page_tokens = 64,
                    .max_pages = n_past / 64 + 9};
    SparseLayer l = make_sparse_layer(o, kReal);
    std::vector<ops::PageId> pages;
    for (uint32_t p = 0; p < o.max_pages; ++p) pages.push_back(p);
    ops::SequenceSpan span;
    span.n_rows = n_past;
    span.pages = pages;
    const double start = seconds_now();
    l.backend->fill_random(span, 1);
    std::printf("filled %u in %.2f s\n", n_past, seconds_now() - start);
    write_step(l, 512, 0.0f);
    report("decode", n_past, 1, time_step(l, pages, n_past, 1, 40), roofs.read_bytes_per_s * 1e-9,
           roofs.float_ops_per_s * 1e-9);
    if (n_past > 262144u) continue;
    report("prefill, random", n_past, 512, time_step(l, pages, n_past, 512, 5),
           roofs.read_bytes_per_s * 1e-9, roofs.float_ops_per_s * 1e-9);
    for (const float shared : {0.8f, 0.95f}) {
      write_step(l, 512, shared);
      const Times t = time_step(l, pages, n_past, 512, 5);
      std::set<uint32_t> all;
      for (uint32_t r = 0; r < 5; ++r) {
        for (const uint32_t p : l.backend->selected_positions(1, 100 + r)) all.insert(p / 4);
      }
      const std::string name = "prefill, alike " + std::to_string(all.size() * 100 / 512) + "%/5";
      report(name.c_str(), n_past, 512, t, roofs.read_bytes_per_s * 1e-9,
             roofs.float_ops_per_s * 1e-9);
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
