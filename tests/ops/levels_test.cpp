// avx2 and avx512 define the non-linear operations in the same lanes, orders and polynomials, so
// their bits agree; a state saved by one may be used by the other without a seam in these.
#include "ops/ops_fixture.h"

namespace okibi::ops_test {
namespace {

// Every non-linear operation once, results chained one after another.
std::vector<float> run_everything(CpuLevel level, ops::KvType type) {
  const uint32_t n = 300;
  const auto backend = open(level);
  EXPECT_TRUE(
      backend->set_kv({.layers = {{2, 64, 96}}, .type = type, .page_tokens = 64, .max_pages = 8})
          .ok());
  EXPECT_TRUE(backend->set_state({.floats_per_slot = 2 * 200, .max_slots = 1}).ok());
  const ops::Rows q = make_rows(*backend, n, 6 * 64, random_floats(n * 6 * 64, 1));
  const ops::Rows k = make_rows(*backend, n, 2 * 64, random_floats(n * 2 * 64, 2));
  const ops::Rows v = make_rows(*backend, n, 2 * 96, random_floats(n * 2 * 96, 3));
  const ops::Rows attended = make_rows(*backend, n, 6 * 96);
  const ops::Rows bcx = make_rows(*backend, n, 600, random_floats(n * 600, 4));
  const ops::Rows convolved = make_rows(*backend, n, 200);
  const ops::Rows gate = make_rows(*backend, n, 6 * 96, random_floats(n * 6 * 96, 5, 5.0f));
  const ops::Vector gamma = *backend->add_vector(random_floats(64, 6));
  const ops::Vector wide = *backend->add_vector(random_floats(600, 7));
  const ops::Vector taps = *backend->add_vector(random_floats(3 * 200, 8));
  ops::RopeConfig c;
  c.head_dim = 64;
  c.n_rot = 40;
  const ops::Rope half = backend->add_rope(c);
  c.style = ops::RopeStyle::kAdjacent;
  const ops::Rope adjacent = backend->add_rope(c);
  run_step(*backend, Step({{.n_rows = n, .pages = {3, 1, 0, 7, 6}}}), [&] {
    backend->norm_heads(q, gamma, 1e-6f);
    backend->rope(q, half);
    backend->rope(k, adjacent);
    backend->kv_append(0, k, v);
    backend->attend(0, q, 6, 0.3f, attended);
    backend->silu_mul(gate, attended, gate);
    backend->rms_norm(bcx, wide, 1e-5f, bcx);
    backend->short_conv(0, bcx, taps, convolved);
  });
  std::vector<float> all;
  for (const ops::Rows r : {q, k, attended, gate, bcx, convolved}) {
    const std::vector<float> values = read_rows(*backend, r, n);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(Levels, Avx2AndAvx512GiveTheSameBitsBesidesProducts) {
  if (best_level(host_cpu()) < CpuLevel::kAvx512) GTEST_SKIP() << "this host has no avx512 level";
  for (const ops::KvType type : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kQ8_0}) {
    EXPECT_TRUE(run_everything(CpuLevel::kAvx2, type) == run_everything(CpuLevel::kAvx512, type))
        << ops::kv_type_name(type);
  }
}

TEST(Levels, ReferenceIsCloseButItsOwn) {
  const CpuLevel best = best_level(host_cpu());
  if (best == CpuLevel::kReference) GTEST_SKIP() << "this host has the reference level only";
  const std::vector<float> reference = run_everything(CpuLevel::kReference, ops::KvType::kF32);
  const std::vector<float> fast = run_everything(best, ops::KvType::kF32);
  EXPECT_LT(nmse(fast, std::vector<double>(reference.begin(), reference.end())), 1e-11);
}

}  // namespace
}  // namespace okibi::ops_test
