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

constexpr int kThreads = 2;

struct Times {
  double select = 1e9, attend = 1e9;
};

// Reads past what any cache holds, as a model reads weights between the keys of two layers: 32 MiB
// of pooled keys that nothing else disturbs stay in a large third-level cache.
void pass_weights() {
  static const std::vector<uint64_t> weights(uint64_t{640} << 17, 1);
  uint64_t sum = 0;
  for (size_t i = 0; i < weights.size(); i += 8) sum += weights[i];
  EXPECT_EQ(sum, weights.size() / 8);
}

// Best of some repetitions of one step with n_rows rows behind n_past positions.
Times time_step(SparseLayer& l, const std::vector<ops::PageId>& pages, uint32_t n_past,
                uint32_t n_rows, int n_repeats) {
  Times t;
  run_step(*l.backend, Step({{.n_past = n_past, .n_rows = n_rows, .pages = pages}}), [&] {
    l.backend->kv_append(1, l.k, l.v);
    l.backend->index_append(l.keys, l.index_k);
    l.backend->select_blocks(1, l.index_q);
    for (int i = 0; i < n_repeats; ++i) {
      if (n_rows == 1) {
        pass_weights();
        l.backend->attend_selected(1, l.q, kReal.n_heads, 0.0625f, l.out);  // wakes the threads
      }
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

void report(const std::string& what, uint32_t n_past, uint32_t n, const Times& t) {
  const double blocks = n_past / 4.0;
  const double select_flop = 2.0 * n * blocks * 4 * 128, attend_flop = 2.0 * n * 2050.0 * 24 * 512;
  std::printf(
      "%-22s %8u past %4u rows: select %9.3f ms (%5.1f GB/s, %6.1f GFLOP/s), "
      "attend %8.3f ms (%6.1f GFLOP/s)\n",
      what.c_str(), n_past, n, t.select * 1e3, n == 1 ? blocks * 512 / t.select * 1e-9 : 0.0,
      select_flop / t.select * 1e-9, t.attend * 1e3, attend_flop / t.attend * 1e-9);
  std::fflush(stdout);
}

struct Context {
  SparseLayer layer;
  std::vector<ops::PageId> pages;
};

Context make_context(uint32_t n_past, const ops::SparseSwitches& switches) {
  const SparseOptions o{.level = best_level(host_cpu()),
                        .type = ops::KvType::kF16,
                        .n_threads = kThreads,
                        .switches = switches,
                        .max_rows = 512,
                        .page_tokens = 64,
                        .max_pages = n_past / 64 + 9};
  Context c{make_sparse_layer(o, kReal), {}};
  for (uint32_t p = 0; p < o.max_pages; ++p) c.pages.push_back(p);
  ops::SequenceSpan span;
  span.n_rows = n_past;
  span.pages = c.pages;
  const double start = seconds_now();
  c.layer.backend->fill_random(span, 1);
  std::printf("filled %u in %.2f s\n", n_past, seconds_now() - start);
  write_step(c.layer, 512, 0.0f);
  return c;
}

TEST(SparsePerf, Switches) {
  if (!perf_enabled) GTEST_SKIP() << "times, with --perf";
  for (const uint32_t n_past : {65536u, 262144u}) {
    for (const ops::SparseSwitches& off :
         {ops::SparseSwitches{}, ops::SparseSwitches{.keep_pooled = false},
          ops::SparseSwitches{.attend_selected = false},
          ops::SparseSwitches{.select_blocks = false}}) {
      Context c = make_context(n_past, off);
      const Times t = time_step(c.layer, c.pages, n_past, 1, 8);
      std::printf(
          "keep pooled %d, attend selected %d, select blocks %d: %u past, select %.3f ms, "
          "attend %.3f ms\n",
          off.keep_pooled, off.attend_selected, off.select_blocks, n_past, t.select * 1e3,
          t.attend * 1e3);
    }
  }
}

TEST(SparsePerf, RealShape) {
  if (!perf_enabled) GTEST_SKIP() << "times, with --perf";
  double read = 0;  // the machine may be shared: the best of several
  for (int i = 0; i < 6; ++i) {
    read = std::max(
        read, cpu::measure_roofs(best_level(host_cpu()), kThreads, 512u << 20).read_bytes_per_s);
  }
  std::printf("reading: %.1f GB/s\n", read * 1e-9);
  for (const uint32_t n_past : {65536u, 262144u, 1048576u}) {
    Context c = make_context(n_past, {});
    SparseLayer& l = c.layer;
    const std::vector<ops::PageId>& pages = c.pages;
    report("decode", n_past, 1, time_step(l, pages, n_past, 1, 40));
    if (n_past > 262144u) continue;
    report("prefill, random", n_past, 512, time_step(l, pages, n_past, 512, 5));
    for (const float shared : {0.8f, 0.95f}) {
      write_step(l, 512, shared);
      const Times t = time_step(l, pages, n_past, 512, 5);
      std::set<uint32_t> all;
      for (uint32_t r = 0; r < 5; ++r) {
        for (const uint32_t p : l.backend->selected_positions(1, 100 + r)) all.insert(p / 4);
      }
      const std::string name = "prefill, alike " + std::to_string(all.size() * 100 / 512) + "%/5";
      report(name, n_past, 512, t);
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
