// Sparse attention against the spec's formulas in double, and with equal bits however the prompt is
// cut, whoever shares the step, however many threads run and whatever the switches say.
#include <algorithm>
#include <set>

#include "ops/sparse_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

struct Case {
  CpuLevel level;
  ops::KvType type;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const CpuLevel level : host_levels()) {
    for (const ops::KvType t : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kQ8_0}) {
      if (level == CpuLevel::kAmx && t != ops::KvType::kF16) continue;  // as avx512
      cases.push_back({level, t});
    }
  }
  return cases;
}
class Sparse : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, Sparse, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(cpu_level_name(info.param.level)) + "_" +
                                  std::string(ops::kv_type_name(info.param.type));
                         });

SparseOptions options(const Case& c, int n_threads = 1) {
  return {.level = c.level, .type = c.type, .n_threads = n_threads, .switches = {}};
}

std::set<uint32_t> blocks_of(const std::vector<uint32_t>& positions, const SparseShape& s,
                             int64_t n) {
  std::set<uint32_t> blocks;
  const auto open = static_cast<uint32_t>(n / s.index.block_tokens * s.index.block_tokens);
  for (const uint32_t p : positions) {
    if (p < open) blocks.insert(p / static_cast<uint32_t>(s.index.block_tokens));
  }
  return blocks;
}

// Right length, ascending, whole blocks, the open one, and no block left out that is clearly better
// than one taken (float32 scores differ by rounding).
void expect_right_set(const SparseLayer& l, const SparseSequence& x, int64_t position,
                      const std::vector<uint32_t>& positions) {
  const ops::IndexShape& index = x.shape.index;
  const int64_t n = position + 1, n_blocks = n / index.block_tokens;
  const int64_t wanted = std::min<int64_t>(n_blocks, index.budget / index.block_tokens);
  ASSERT_EQ(static_cast<int64_t>(positions.size()),
            wanted * index.block_tokens + n % index.block_tokens);
  EXPECT_TRUE(std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) ==
              positions.end());
  const std::set<uint32_t> taken = blocks_of(positions, x.shape, n);
  ASSERT_EQ(static_cast<int64_t>(taken.size()), wanted) << "parts of blocks";
  for (int64_t p = n_blocks * index.block_tokens; p < n; ++p) {
    EXPECT_TRUE(std::binary_search(positions.begin(), positions.end(), static_cast<uint32_t>(p)));
  }
  const std::vector<double> scores = reference_scores(l, x, position);
  double worst_taken = 1e9, best_left = -1;
  for (size_t b = 0; b < scores.size(); ++b) {
    if (taken.count(static_cast<uint32_t>(b)) > 0) {
      worst_taken = std::min(worst_taken, scores[b]);
    } else {
      best_left = std::max(best_left, scores[b]);
    }
  }
  EXPECT_GE(worst_taken, best_left - 1e-5) << "position " << position;
}

TEST_P(Sparse, FollowsTheSpec) {
  for (const SparseShape& s : {SparseShape{},
                               SparseShape{.n_heads = 6,
                               .n_kv_heads = 1,
                               .head_dim = 64,
                               .index_heads = 5,
                               .index = {.dim = 48, .block_tokens = 2, .budget = 8}},
                               SparseShape{.n_heads = 24,
                               .n_kv_heads = 2,
                               .head_dim = 64,
                               .index_heads = 4,
                               .index = {.dim = 128, .block_tokens = 4, .budget = 288}}}) {
    SparseLayer l = make_sparse_layer(options(GetParam()), s);
    SparseSequence x = make_sparse_sequence(s, s.index.budget + 303, 11);
    give_memory(l, x);
    const SparseResult got = run_sparse_chunks(l, x, 200);
    for (int64_t t = 0; t < x.n; t += t % 16 == 3 ? 13 : 1) {
      const auto i = static_cast<size_t>(t);
      expect_right_set(l, x, t, got.positions[i]);
      const auto cols = static_cast<size_t>(s.n_heads * s.head_dim);
      EXPECT_LT(nmse(std::span(got.out).subspan(i * cols, cols),
                     reference_attend(x, t, got.positions[i], GetParam().type)),
                kAttend)
          << t;
    }
  }
}

TEST_P(Sparse, EqualsAttendWhereEverythingIsSelected) {
  const SparseShape s;
  SparseLayer l = make_sparse_layer(options(GetParam()), s);
  const int64_t dense = s.index.budget + 3;
  SparseSequence x = make_sparse_sequence(s, dense + 1, 12);
  give_memory(l, x);
  const SparseResult got = run_sparse_chunks(l, x, x.n);
  run_step(*l.backend, Step({{.n_rows = static_cast<uint32_t>(x.n), .pages = x.pages}}), [&] {
    l.backend->attend(1, l.q, s.n_heads, 1.0f / std::sqrt(static_cast<float>(s.head_dim)), l.out);
  });
  const std::vector<float> want = read_rows(*l.backend, l.out, x.n);
  const size_t cols = want.size() / static_cast<size_t>(x.n);
  const auto n = static_cast<size_t>(dense) * cols;
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + static_cast<int64_t>(n), got.out.begin()));
  EXPECT_FALSE(std::equal(want.begin() + static_cast<int64_t>(n), want.end(),
                          got.out.begin() + static_cast<int64_t>(n)))
      << "the first query that selects";
  EXPECT_EQ(got.positions[static_cast<size_t>(dense) - 1].size(), static_cast<size_t>(dense));
  EXPECT_EQ(got.positions[static_cast<size_t>(dense)].size(), static_cast<size_t>(dense) - 3);
}

TEST_P(Sparse, GivesTheSameBitsHoweverTheStepIsMade) {
  const SparseShape s{.n_heads = 12,
                      .n_kv_heads = 1,
                      .head_dim = 32,
                      .index_heads = 3,
                      .index = {.dim = 32, .block_tokens = 4, .budget = 288}};
  SparseLayer l = make_sparse_layer(options(GetParam()), s);
  SparseSequence x = make_sparse_sequence(s, 700, 13), y = make_sparse_sequence(s, 410, 14);
  give_memory(l, x);
  give_memory(l, y);
  const SparseResult want = run_sparse_chunks(l, x, 512), other = run_sparse_chunks(l, y, 410);
  for (const int64_t chunk : {1, 2, 3, 5, 67, 350}) {
    if (chunk < 5 && GetParam().level == CpuLevel::kReference) continue;
    l.backend->zero_slot(x.slot);
    EXPECT_TRUE(run_sparse_chunks(l, x, chunk, chunk % 2 == 1) == want) << chunk;
  }
  for (const int n_threads : {2, 3}) {
    SparseLayer m = make_sparse_layer(options(GetParam(), n_threads), s);
    SparseSequence a = x, b = y;
    a.pages.clear();
    b.pages.clear();
    give_memory(m, a);
    give_memory(m, b);
    SparseResult ra, rb;
    const int64_t n_borders = 8;
    for (int64_t i = 0; i < n_borders; ++i) {  // parts of both in every step, of uneven sizes
      const auto border = [&](int64_t n, int64_t j) { return n * j * j / (n_borders * n_borders); };
      run_sparse_parts(m, {{&a, border(a.n, i), border(a.n, i + 1), &ra, i % 2 == 0},
                           {&b, border(b.n, i), border(b.n, i + 1), &rb}});
    }
    EXPECT_TRUE(ra == want && rb == other) << n_threads << " threads, two sequences";
    m.backend->zero_slot(a.slot);
    EXPECT_TRUE(run_sparse_chunks(m, a, 65) == want) << n_threads << " threads";
  }
}

TEST_P(Sparse, SwitchesChangeNoBit) {
  const SparseShape s;
  SparseResult want;
  std::vector<float> want_state;
  for (int bits = 0; bits < 8; ++bits) {
    SparseOptions o = options(GetParam(), bits == 5 ? 2 : 1);
    o.switches = {.keep_pooled = (bits & 1) == 0,
                  .attend_selected = (bits & 2) == 0,
                  .select_blocks = (bits & 4) == 0};
    SparseLayer l = make_sparse_layer(o, s);
    SparseSequence x = make_sparse_sequence(s, 222, 15);
    for (size_t i = 0; i < x.index_k.size(); ++i) {  // equal keys far apart: ties
      const auto block = i / 64;
      if (block % 5 == 0) x.index_k[i] = 0.0f;
    }
    give_memory(l, x);
    const SparseResult got = run_sparse_chunks(l, x, 37);
    std::vector<float> state(kSparseStateOffset + 3 * 16 + 3);
    l.backend->download_slot(x.slot, state);
    if (bits == 0) {
      want = got;
      want_state = state;
    }
    EXPECT_TRUE(got == want) << bits;
    EXPECT_EQ(state, want_state) << bits;
  }
}

// Index keys whose only value that a query sees is `value` (past the rotated ones).
void set_index(SparseSequence& x, const std::function<float(int64_t block)>& value) {
  const int64_t dim = x.shape.index.dim;
  for (int64_t t = 0; t < x.n; ++t) {
    for (int64_t i = 0; i < dim; ++i) x.index_k[static_cast<size_t>(t * dim + i)] = 0.5f;
    x.index_k[static_cast<size_t>(t * dim + dim - 1)] = value(t / x.shape.index.block_tokens);
  }
  std::fill(x.index_q.begin(), x.index_q.end(), 0.0f);
  for (size_t i = static_cast<size_t>(dim) - 1; i < x.index_q.size();
       i += static_cast<size_t>(dim)) {
    x.index_q[i] = 1.0f;
  }
}

std::vector<uint32_t> last_blocks(const Case& c, SparseSequence x, int64_t chunk) {
  SparseLayer l = make_sparse_layer(options(c), x.shape);
  give_memory(l, x);
  const std::set<uint32_t> blocks =
      blocks_of(run_sparse_chunks(l, x, chunk).positions.back(), x.shape, x.n);
  return {blocks.begin(), blocks.end()};
}

TEST_P(Sparse, TakesTheLowerBlockOfEqualScores) {
  SparseSequence x = make_sparse_sequence({}, 240, 16);
  for (const int64_t chunk : {240, 239, 1}) {
    set_index(x, [](int64_t) { return -1.0f; });  // nothing positive: all scores are zero
    EXPECT_EQ(last_blocks(GetParam(), x, chunk), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    // Fewer positive scores than the budget.
    set_index(x, [](int64_t b) { return b == 2 || b == 30 || b == 59 ? 1.0f : -1.0f; });
    EXPECT_EQ(last_blocks(GetParam(), x, chunk), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 30, 59}));
    // More equal ones than places, two better ones at the end.
    set_index(x, [](int64_t b) { return b >= 57 && b != 58 ? 2.0f : b % 3 == 0 ? 1.0f : -1.0f; });
    EXPECT_EQ(last_blocks(GetParam(), x, chunk),
              (std::vector<uint32_t>{0, 3, 6, 9, 12, 15, 57, 59}));
    // The query's own block, complete, loses its place.
    set_index(x, [](int64_t b) { return b >= 50 && b < 58 ? 1.0f : -1.0f; });
    EXPECT_EQ(last_blocks(GetParam(), x, chunk),
              (std::vector<uint32_t>{50, 51, 52, 53, 54, 55, 56, 57}));
  }
}

TEST_P(Sparse, NotANumberScoresNothing) {
  SparseSequence x = make_sparse_sequence({}, 240, 17);
  set_index(x, [](int64_t b) { return b % 2 == 0 ? NAN : b < 22 ? 1.0f : 0.5f; });
  for (const int64_t chunk : {240, 239}) {
    EXPECT_EQ(last_blocks(GetParam(), x, chunk),
              (std::vector<uint32_t>{1, 3, 5, 7, 9, 11, 13, 15}));
  }
}

// A long row is cut into ranges of blocks; many candidates come and go.
TEST_P(Sparse, SelectsOfManyBlocksOverThreads) {
  if (GetParam().level == CpuLevel::kReference || GetParam().type != ops::KvType::kF16) return;
  const SparseShape s;
  const int64_t n = 9000 * 4 + 2;
  SparseSequence x = make_sparse_sequence(s, n, 18);
  for (int64_t t = 0; t < n; ++t) {  // scores rise along the sequence: the buffers fill again
    for (int64_t i = 0; i < 16; ++i) {
      x.index_k[static_cast<size_t>(t * 16 + i)] += static_cast<float>(t) * 1e-4f;
    }
  }
  SparseResult want;
  for (const int n_threads : {1, 2, 3}) {
    SparseOptions o = options(GetParam(), n_threads);
    o.max_pages = 800;
    SparseLayer l = make_sparse_layer(o, s);
    SparseSequence y = x;
    give_memory(l, y);
    SparseResult prefix, got;
    for (int64_t t = 0; t < n - 70; t += 512) {
      run_sparse_parts(l, {{&y, t, std::min(t + 512, n - 70), &prefix}});
    }
    if (n_threads == 2) {
      run_sparse_parts(l, {{&y, n - 70, n, &got}});
    } else {
      for (int64_t t = n - 70; t < n; ++t) run_sparse_parts(l, {{&y, t, t + 1, &got}});
    }
    if (n_threads == 1) {
      want = got;
      expect_right_set(l, y, n - 1, got.positions.back());
    }
    EXPECT_TRUE(got == want) << n_threads;
  }
}

// Sequences that are appended to, forked inside a block by copying a page and the slot, dropped and
// continued, must always equal a fresh prefill.
struct Forest {
  struct Live {
    SparseSequence x;
    int64_t n = 0;  // run so far
  };
  SparseLayer layer;
  std::vector<Live> live;
  std::mt19937 random{19};

  void fork(const Live& a, uint32_t seed);
  void step(uint32_t seed);
  void expect_fresh(Live& a, CpuLevel level);
};

void Forest::fork(const Live& a, uint32_t seed) {
  const SparseShape& s = a.x.shape;
  Live b{make_sparse_sequence(s, a.x.n, seed), a.n};
  const auto copy_rows = [&](std::vector<float>& to, const std::vector<float>& from, int64_t cols) {
    std::copy(from.begin(), from.begin() + a.n * cols, to.begin());
  };
  copy_rows(b.x.q, a.x.q, s.n_heads * s.head_dim);
  copy_rows(b.x.k, a.x.k, s.n_kv_heads * s.head_dim);
  copy_rows(b.x.v, a.x.v, s.n_kv_heads * s.head_dim);
  copy_rows(b.x.index_q, a.x.index_q, s.index_heads * s.index.dim);
  copy_rows(b.x.index_k, a.x.index_k, s.index.dim);
  const int64_t shared = a.n / kSparsePageTokens;
  b.x.pages.assign(a.x.pages.begin(), a.x.pages.begin() + shared);
  give_memory(layer, b.x);
  layer.backend->copy_page(a.x.pages[static_cast<size_t>(shared)],
                           b.x.pages[static_cast<size_t>(shared)],
                           static_cast<int32_t>(a.n % kSparsePageTokens));
  layer.backend->copy_slot(a.x.slot, b.x.slot);
  live.push_back(std::move(b));
}

void Forest::step(uint32_t seed) {
  const size_t i = random() % live.size();
  const uint32_t action = random() % 4;
  Live& a = live[i];
  if (action == 0 && live.size() < 6 && a.n > 40 && a.n < a.x.n) return fork(Live(a), seed);
  if (action == 1 && live.size() > 3) {
    layer.free_slots.push_back(a.x.slot);
    std::swap(a, live.back());
    return live.pop_back();
  }
  if (a.n == a.x.n) return;
  const int64_t n = std::min<int64_t>(a.x.n, a.n + 1 + random() % 11);
  SparseResult ignored;
  run_sparse_parts(layer, {{&a.x, a.n, n, &ignored, random() % 2 == 0}});
  a.n = n;
}

void Forest::expect_fresh(Live& a, CpuLevel level) {
  if (a.n == a.x.n) return;
  SparseResult got, want, prefix;
  run_sparse_parts(layer, {{&a.x, a.n, a.n + 1, &got}});
  SparseLayer fresh = make_sparse_layer(options({level, ops::KvType::kF16}), a.x.shape);
  SparseSequence x = a.x;
  x.pages.clear();
  give_memory(fresh, x);
  run_sparse_parts(fresh, {{&x, 0, a.n, &prefix}});
  run_sparse_parts(fresh, {{&x, a.n, a.n + 1, &want}});
  EXPECT_TRUE(got == want) << "at " << a.n;
  std::vector<float> state(kSparseStateOffset + 3 * 16 + 3), fresh_state = state;
  layer.backend->download_slot(a.x.slot, state);
  fresh.backend->download_slot(x.slot, fresh_state);
  EXPECT_EQ(state, fresh_state);
}

TEST_P(Sparse, ForksAndReturnsEqualAFreshPrefill) {
  if (GetParam().type != ops::KvType::kF16) return;
  for (const bool keep_pooled : {true, false}) {
    SparseOptions o = options(GetParam());
    o.switches.keep_pooled = keep_pooled;
    Forest forest{make_sparse_layer(o, {}), {}};
    forest.live.push_back({make_sparse_sequence({}, 400, 20), 0});
    give_memory(forest.layer, forest.live[0].x);
    for (uint32_t i = 0; i < 150; ++i) forest.step(100 + 7 * i);
    EXPECT_GT(forest.live.size(), 2u);
    for (Forest::Live& a : forest.live) forest.expect_fresh(a, GetParam().level);
  }
}

// Groups of 12 heads have a kernel of their own at avx512; at avx2 attend's serves them.
TEST(SparseLevels, Avx2AndAvx512GiveTheSameBits) {
  if (best_level(host_cpu()) < CpuLevel::kAvx512) GTEST_SKIP() << "this host has no avx512 level";
  for (const int32_t head_dim : {32, 96, 256}) {
    const SparseShape s{.n_heads = 24,
                        .n_kv_heads = 2,
                        .head_dim = head_dim,
                        .index_heads = 4,
                        .index = {.dim = 128, .block_tokens = 4, .budget = 600}};
    for (const ops::KvType type : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kQ8_0}) {
      std::vector<SparseResult> results;
      for (const CpuLevel level : {CpuLevel::kAvx2, CpuLevel::kAvx512}) {
        SparseLayer l = make_sparse_layer(options({level, type}, 2), s);
        SparseSequence x = make_sparse_sequence(s, 760, 22);
        give_memory(l, x);
        SparseResult r;
        run_sparse_parts(l, {{&x, 0, 500, &r}});
        run_sparse_parts(l, {{&x, 500, 501, &r}});  // dense, one query
        run_sparse_parts(l, {{&x, 501, 759, &r}});
        run_sparse_parts(l, {{&x, 759, 760, &r}});
        results.push_back(std::move(r));
      }
      EXPECT_TRUE(results[0] == results[1]) << head_dim << " " << ops::kv_type_name(type);
    }
  }
}

TEST(SparseMemory, PageBytesCountIndexKeys) {
  ops::KvConfig config{.layers = {{2, 32, 32}, {2, 32, 32, {16, 4, 32}}, {2, 32, 32, {16, 4, 32}}},
                       .type = ops::KvType::kF16,
                       .sparse = {},
                       .page_tokens = 64,
                       .max_pages = 10};
  const uint64_t pages = 3 * 2 * 2 * 64 * 32 * 2;
  EXPECT_EQ(ops::kv_page_bytes(config), pages + 2 * 16 * 16 * 4);
  config.sparse.keep_pooled = false;
  EXPECT_EQ(ops::kv_page_bytes(config), pages + 2 * 64 * 16 * 4 + 16 * 16 * 4);
}

TEST_P(Sparse, RandomContextIsTheSameHoweverItIsFilled) {
  if (GetParam().type != ops::KvType::kF16) return;
  const SparseShape s;
  std::vector<SparseResult> results;
  for (int way = 0; way < 4; ++way) {
    SparseOptions o = options(GetParam(), way == 1 ? 3 : 1);
    o.switches.keep_pooled = way != 3;
    SparseLayer l = make_sparse_layer(o, s);
    SparseSequence x = make_sparse_sequence(s, 700, 21);
    give_memory(l, x);
    SparseResult first, got;
    run_sparse_parts(l, {{&x, 0, 3, &first}});  // shows the layer's index keys
    const auto fill = [&](uint32_t begin, uint32_t end) {
      ops::SequenceSpan span;
      span.n_past = begin;
      span.n_rows = end - begin;
      span.dst_slot = x.slot;
      span.pages = x.pages;
      l.backend->fill_random(span, 33);
    };
    if (way == 2) {
      for (uint32_t n = 0; n < 690; n += 69) fill(n, n + 69);
    } else {
      fill(0, 690);
    }
    run_sparse_parts(l, {{&x, 690, 700, &got}});
    results.push_back(got);
    EXPECT_TRUE(results.back() == results.front()) << way;
  }
}

}  // namespace
}  // namespace okibi::ops_test
