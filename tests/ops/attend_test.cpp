// Attention and paged K/V: against softmax in double on every level and K/V type, and with equal
// bits however the prompt is cut, whoever shares the step and however many threads run.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/f16.h"
#include "ops/ops_fixture.h"
#include "ops/tolerances.h"

namespace okibi::ops_test {
namespace {

struct Shape {
  int32_t n_heads, n_kv_heads, k_dim, v_dim;
};
struct Case {
  CpuLevel level;
  ops::KvType type;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const CpuLevel level : host_levels()) {
    for (const ops::KvType t : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kQ8_0}) {
      // amx brings products only; one type shows that attention still runs there.
      if (level == CpuLevel::kAmx && t != ops::KvType::kF16) continue;
      cases.push_back({level, t});
    }
  }
  return cases;
}

class Attend : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, Attend, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(cpu_level_name(info.param.level)) + "_" +
                                  std::string(ops::kv_type_name(info.param.type));
                         });

// What a value reads back as; q8_0 in blocks of 32.
std::vector<float> as_stored(std::vector<float> x, ops::KvType type) {
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (size_t i = b; i < std::min(b + 32, x.size()); ++i) {
      largest = std::max(largest, std::abs(x[i]));
    }
    for (size_t i = b; i < std::min(b + 32, x.size()); ++i) {
      if (type == ops::KvType::kF16) x[i] = f16_to_float(float_to_f16(x[i]));
      if (type == ops::KvType::kQ8_0) {
        const float d = f16_to_float(float_to_f16(largest / 127.0f));
        x[i] = largest == 0 ? 0.0f : d * std::nearbyint(x[i] * (127.0f / largest));
      }
    }
  }
  return x;
}

// Queries, keys and values of one sequence, all positions.
struct Sequence {
  Shape shape;
  int64_t n = 0;
  std::vector<float> q, k, v;
  std::vector<ops::PageId> pages;
};

Sequence make_sequence(const Shape& s, int64_t n, uint32_t seed) {
  Sequence x;
  x.shape = s;
  x.n = n;
  x.q = random_floats(n * s.n_heads * s.k_dim, seed);
  x.k = random_floats(n * s.n_kv_heads * s.k_dim, seed + 1);
  x.v = random_floats(n * s.n_kv_heads * s.v_dim, seed + 2);
  return x;
}

REFERENCE_CODE std::vector<double> attend_reference(const Sequence& x, float scale,
                                                    ops::KvType stored_as) {
  const Shape& s = x.shape;
  const std::vector<float> k = as_stored(x.k, stored_as), v = as_stored(x.v, stored_as);
  std::vector<double> out(static_cast<size_t>(x.n * s.n_heads * s.v_dim));
  for (int64_t t = 0; t < x.n; ++t) {
    for (int64_t h = 0; h < s.n_heads; ++h) {
      const int64_t g = h / (s.n_heads / s.n_kv_heads);
      const float* q = x.q.data() + (t * s.n_heads + h) * s.k_dim;
      std::vector<double> p(static_cast<size_t>(t) + 1);
      double m = -1e300, sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        const float* row = k.data() + (j * s.n_kv_heads + g) * s.k_dim;
        double dot = 0;
        for (int32_t i = 0; i < s.k_dim; ++i) dot += static_cast<double>(q[i]) * row[i];
        p[static_cast<size_t>(j)] = dot * scale;
        m = std::max(m, dot * scale);
      }
      double* o = out.data() + (t * s.n_heads + h) * s.v_dim;
      for (int64_t j = 0; j <= t; ++j) {
        const double e = std::exp(p[static_cast<size_t>(j)] - m);
        sum += e;
        const float* row = v.data() + (j * s.n_kv_heads + g) * s.v_dim;
        for (int32_t i = 0; i < s.v_dim; ++i) o[i] += e * row[i];
      }
      for (int32_t i = 0; i < s.v_dim; ++i) o[i] /= sum;
    }
  }
  return out;
}

constexpr int32_t kPageTokens = 48;  // no divisor of a partition: runs of every length

// A backend with the buffers of one attention layer (the second of two, so that offsets count).
struct Layer {
  Shape shape;
  std::unique_ptr<ops::Backend> backend;
  ops::Rows q, k, v, out;
  std::vector<ops::PageId> free_pages;
};

Layer make_layer(const Case& c, const Shape& s, int n_threads, int64_t max_rows,
                 int32_t page_tokens = kPageTokens, uint32_t max_pages = 200) {
  Layer l;
  l.shape = s;
  l.backend = open(c.level, n_threads);
  EXPECT_TRUE(l.backend
                  ->set_kv({.layers = {{2, 32, 32}, {s.n_kv_heads, s.k_dim, s.v_dim}},
                            .type = c.type,
                            .page_tokens = page_tokens,
                            .max_pages = max_pages})
                  .ok());
  l.q = make_rows(*l.backend, max_rows, int64_t{s.n_heads} * s.k_dim);
  l.k = make_rows(*l.backend, max_rows, int64_t{s.n_kv_heads} * s.k_dim);
  l.v = make_rows(*l.backend, max_rows, int64_t{s.n_kv_heads} * s.v_dim);
  l.out = make_rows(*l.backend, max_rows, int64_t{s.n_heads} * s.v_dim);
  l.free_pages.resize(max_pages);
  std::iota(l.free_pages.begin(), l.free_pages.end(), 0u);
  std::shuffle(l.free_pages.begin(), l.free_pages.end(), std::mt19937(5));
  return l;
}

void give_pages(Layer& l, Sequence& x) {
  for (int64_t n = 0; n < x.n; n += kPageTokens) {
    x.pages.push_back(l.free_pages.back());
    l.free_pages.pop_back();
  }
}

// Part [begin, end) of each sequence in one step; results appended to each sequence's own.
struct Part {
  const Sequence* x;
  int64_t begin, end;
  std::vector<float>* out;
};

void run_parts(Layer& l, const std::vector<Part>& parts, float scale) {
  std::vector<Step::Sequence> sequences;
  const Shape& s = l.shape;
  std::vector<float> q, k, v;
  const auto add = [](std::vector<float>& to, const std::vector<float>& from, int64_t begin,
                      int64_t end, int64_t cols) {
    to.insert(to.end(), from.begin() + begin * cols, from.begin() + end * cols);
  };
  for (const Part& p : parts) {
    sequences.push_back({.n_past = static_cast<uint32_t>(p.begin),
                         .n_rows = static_cast<uint32_t>(p.end - p.begin),
                         .pages = p.x->pages});
    add(q, p.x->q, p.begin, p.end, int64_t{s.n_heads} * s.k_dim);
    add(k, p.x->k, p.begin, p.end, int64_t{s.n_kv_heads} * s.k_dim);
    add(v, p.x->v, p.begin, p.end, int64_t{s.n_kv_heads} * s.v_dim);
  }
  write_rows(*l.backend, l.q, q);
  write_rows(*l.backend, l.k, k);
  write_rows(*l.backend, l.v, v);
  run_step(*l.backend, Step(sequences), [&] {
    l.backend->kv_append(1, l.k, l.v);
    l.backend->attend(1, l.q, s.n_heads, scale, l.out);
  });
  int64_t row = 0;
  for (const Part& p : parts) {
    for (int64_t t = p.begin; t < p.end; ++t, ++row) {
      const std::span<const float> values = l.backend->read(l.out, row);
      p.out->insert(p.out->end(), values.begin(), values.end());
    }
  }
}

std::vector<float> run_chunks(Layer& l, const Sequence& x, int64_t chunk, float scale) {
  std::vector<float> out;
  for (int64_t t = 0; t < x.n; t += chunk) {
    run_parts(l, {{&x, t, std::min(t + chunk, x.n), &out}}, scale);
  }
  return out;
}

TEST_P(Attend, FollowsSoftmaxOverStoredKeysForManyShapes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool is_slow = true;  // one partition border instead of two; the cost is quadratic
#else
  const bool is_slow = GetParam().level == CpuLevel::kReference;
#endif
  for (const Shape& s : {Shape{4, 2, 64, 64},
                         {9, 3, 64, 64},
                         {2, 1, 32, 32},
                         {3, 3, 96, 96},
                         {6, 2, 128, 96},
                         {12, 1, 256, 256},
                         {3, 1, 40, 24},
                         {2, 2, 16, 16}}) {
    if (GetParam().type == ops::KvType::kQ8_0 && (s.k_dim % 32 != 0 || s.v_dim % 32 != 0)) continue;
    Layer l = make_layer(GetParam(), s, 2, 600);
    Sequence x = make_sequence(s, is_slow || s.k_dim > 64 ? 290 : 560, 30);
    give_pages(l, x);
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.k_dim));
    const std::vector<float> y = run_chunks(l, x, 400, scale);
    EXPECT_LT(nmse(y, attend_reference(x, scale, GetParam().type)), kAttend)
        << s.n_heads << " heads over " << s.n_kv_heads << " of " << s.k_dim << ", " << s.v_dim;
    const double unstored = GetParam().type == ops::KvType::kF32   ? kAttend
                            : GetParam().type == ops::KvType::kF16 ? kAttendF16Stored
                                                                   : kAttendQ8Stored;
    EXPECT_LT(nmse(y, attend_reference(x, scale, ops::KvType::kF32)), unstored);
  }
}

TEST_P(Attend, SurvivesScoresFarApart) {
  const Shape s{2, 1, 64, 64};
  Layer l = make_layer(GetParam(), s, 1, 600);
  Sequence x = make_sequence(s, 520, 40);
  for (float& q : x.q) q *= 40.0f;
  give_pages(l, x);
  EXPECT_LT(nmse(run_chunks(l, x, 520, 1.0f), attend_reference(x, 1.0f, GetParam().type)),
            kAttendSharp);
}

TEST_P(Attend, GivesTheSameBitsInChunksOfAnySize) {
  for (const Shape& s : {Shape{6, 2, 64, 64}, {2, 1, 96, 32}}) {
    Layer l = make_layer(GetParam(), s, 2, 600);
    Sequence x = make_sequence(s, 523, 50);
    give_pages(l, x);
    const std::vector<float> whole = run_chunks(l, x, 523, 0.125f);
    for (const int64_t chunk : {1, 17, 300}) {
      EXPECT_TRUE(run_chunks(l, x, chunk, 0.125f) == whole) << "chunks of " << chunk;
    }
  }
}

TEST_P(Attend, GivesTheSameBitsAmongNeighboursAndOnAnyNumberOfThreads) {
  const Shape s{6, 2, 64, 64};
  std::vector<float> alone;
  for (const int n_threads : {1, 2, 3, 7}) {
    Layer l = make_layer(GetParam(), s, n_threads, 600);
    Sequence x = make_sequence(s, 700, 60), a = make_sequence(s, 30, 70),
             b = make_sequence(s, 300, 80);
    give_pages(l, x);
    give_pages(l, a);
    give_pages(l, b);
    std::vector<float> ignored, single, shared;
    run_parts(l, {{&x, 0, 300, &single}}, 0.125f);
    run_parts(l, {{&x, 300, 699, &single}}, 0.125f);
    run_parts(l, {{&x, 699, 700, &single}}, 0.125f);
    run_parts(l, {{&b, 0, 280, &ignored}, {&x, 0, 300, &shared}}, 0.125f);
    run_parts(l, {{&a, 0, 29, &ignored}, {&x, 300, 699, &shared}, {&b, 280, 299, &ignored}},
              0.125f);
    run_parts(l, {{&a, 29, 30, &ignored}, {&x, 699, 700, &shared}, {&b, 299, 300, &ignored}},
              0.125f);
    EXPECT_TRUE(single == shared) << n_threads << " threads";
    if (alone.empty()) alone = single;
    EXPECT_TRUE(single == alone) << n_threads << " threads";
  }
}

TEST_P(Attend, GivesTheSameBitsWhereverThePagesLie) {
  const Shape s{4, 2, 64, 64};
  Layer l = make_layer(GetParam(), s, 2, 600);
  Sequence x = make_sequence(s, 200, 90), moved = x;
  give_pages(l, x);
  give_pages(l, moved);
  const std::vector<float> first = run_chunks(l, x, 200, 0.125f);
  EXPECT_TRUE(run_chunks(l, moved, 200, 0.125f) == first);
}

TEST_P(Attend, CopiesTheFirstTokensOfAPageAndForgetsDiscardedOnes) {
  const Shape s{4, 2, 64, 64};
  Layer l = make_layer(GetParam(), s, 2, 600);
  Sequence x = make_sequence(s, 30, 100);
  give_pages(l, x);
  std::vector<float> original, forked;
  run_parts(l, {{&x, 0, 29, &original}}, 0.125f);
  original.clear();
  const ops::PageId copy = l.free_pages.back();
  l.backend->copy_page(x.pages[0], copy, 29);
  run_parts(l, {{&x, 29, 30, &original}}, 0.125f);
  l.backend->discard_page(x.pages[0]);
  x.pages[0] = copy;
  run_parts(l, {{&x, 29, 30, &forked}}, 0.125f);
  EXPECT_TRUE(forked == original);
}

TEST(AttendErrors, Q8KeysNeedHeadsOfAMultipleOf32) {
  const auto backend = open(CpuLevel::kReference);
  const Status status =
      backend->set_kv({.layers = {{2, 48, 48}}, .type = ops::KvType::kQ8_0, .max_pages = 1});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("48"), std::string::npos) << status.message();
}

TEST_P(Attend, PerfOfRealShapes) {
  if (!perf_enabled) return;
  struct Timing {
    const char* name;
    Shape shape;
    uint32_t n_past, n_rows;
  };
  for (const Timing& t : {Timing{"prefill 512, 16/8 x 64", {16, 8, 64, 64}, 0, 512},
                          {"prefill 512 at 3584, 16/8 x 64", {16, 8, 64, 64}, 3584, 512},
                          {"prefill 512, 9/3 x 64", {9, 3, 64, 64}, 0, 512},
                          {"prefill 512 at 1536, 8/2 x 256", {8, 2, 256, 256}, 1536, 512},
                          {"decode at 512, 16/8 x 64", {16, 8, 64, 64}, 511, 1},
                          {"decode at 16k, 16/8 x 64", {16, 8, 64, 64}, 16383, 1},
                          {"decode at 64k, 8/2 x 256", {8, 2, 256, 256}, 65535, 1}}) {
    if (GetParam().level == CpuLevel::kReference && t.n_past > 4000) continue;
    for (const int n_threads : {1, 2}) {
      const Shape& s = t.shape;
      const uint32_t n_pages = (t.n_past + t.n_rows + 63) / 64;
      Layer l = make_layer(GetParam(), s, n_threads, 512, 64, n_pages);
      std::vector<ops::PageId> pages = l.free_pages;
      for (uint32_t p = 0; p < t.n_past; p += 512) {  // touch every page
        const uint32_t n = std::min(512u, t.n_past - p);
        run_step(*l.backend, Step({{.n_past = p, .n_rows = n, .pages = pages}}),
                 [&] { l.backend->kv_append(1, l.k, l.v); });
      }
      write_rows(*l.backend, l.q, random_floats(int64_t{t.n_rows} * l.q.cols, 1));
      run_step(*l.backend, Step({{.n_past = t.n_past, .n_rows = t.n_rows, .pages = pages}}), [&] {
        double keys = 0;
        for (uint32_t i = 0; i < t.n_rows; ++i) keys += t.n_past + i + 1.0;
        time_case(std::string(cpu_level_name(GetParam().level)) + "." +
                      std::string(ops::kv_type_name(GetParam().type)) + " " + t.name + " x" +
                      std::to_string(n_threads),
                  2 * keys * s.n_heads * (s.k_dim + s.v_dim), "GFLOP/s",
                  [&] { l.backend->attend(1, l.q, s.n_heads, 0.125f, l.out); });
      });
    }
  }
}

}  // namespace
}  // namespace okibi::ops_test
