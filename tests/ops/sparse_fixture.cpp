#include "ops/sparse_fixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/f16.h"

namespace okibi::ops_test {
namespace {

constexpr float kEps = 1e-6f;
constexpr double kBase = 10000.0;

std::vector<float> gammas(int32_t dim) {
  std::vector<float> g = random_floats(dim, 77, 0.2f);
  for (float& x : g) x += 1.0f;
  return g;
}

int32_t rotated(const SparseShape& s) {
  return s.index.dim / 2;
}

void append(std::vector<float>& to, const std::vector<float>& from, int64_t begin, int64_t end,
            int64_t cols) {
  to.insert(to.end(), from.begin() + begin * cols, from.begin() + end * cols);
}

// A value as it reads back; q8_0 in blocks of 32.
std::vector<float> stored(std::vector<float> x, ops::KvType type) {
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    for (size_t i = b; i < b + 32; ++i) {
      if (type == ops::KvType::kF16) x[i] = f16_to_float(float_to_f16(x[i]));
      if (type == ops::KvType::kQ8_0) {
        const float d = f16_to_float(float_to_f16(largest / 127.0f));
        x[i] = largest == 0 ? 0.0f : d * std::nearbyint(x[i] * (127.0f / largest));
      }
    }
  }
  return x;
}

}  // namespace

SparseSequence make_sparse_sequence(const SparseShape& s, int64_t n, uint32_t seed) {
  SparseSequence x;
  x.shape = s;
  x.n = n;
  x.q = random_floats(n * s.n_heads * s.head_dim, seed);
  x.k = random_floats(n * s.n_kv_heads * s.head_dim, seed + 1);
  x.v = random_floats(n * s.n_kv_heads * s.head_dim, seed + 2);
  x.index_q = random_floats(n * s.index_heads * s.index.dim, seed + 3);
  x.index_k = random_floats(n * s.index.dim, seed + 4, 3.0f);
  return x;
}

SparseLayer make_sparse_layer(const SparseOptions& o, const SparseShape& s) {
  SparseLayer l;
  l.shape = s;
  l.backend = open(o.level, o.n_threads);
  ops::Backend& b = *l.backend;
  EXPECT_TRUE(b.set_kv({.layers = {{2, 32, 32}, {s.n_kv_heads, s.head_dim, s.head_dim, s.index}},
                        .type = o.type,
                        .sparse = o.switches,
                        .page_tokens = o.page_tokens,
                        .max_pages = o.max_pages})
                  .ok());
  const auto kept = static_cast<uint64_t>((s.index.block_tokens - 1) * s.index.dim);
  EXPECT_TRUE(
      b.set_state({.floats_per_slot = kSparseStateOffset + kept + 3, .max_slots = 64}).ok());
  l.q = make_rows(b, o.max_rows, int64_t{s.n_heads} * s.head_dim);
  l.k = make_rows(b, o.max_rows, int64_t{s.n_kv_heads} * s.head_dim);
  l.v = make_rows(b, o.max_rows, int64_t{s.n_kv_heads} * s.head_dim);
  l.index_q = make_rows(b, o.max_rows, int64_t{s.index_heads} * s.index.dim);
  l.index_k = make_rows(b, o.max_rows, s.index.dim);
  l.out = make_rows(b, o.max_rows, int64_t{s.n_heads} * s.head_dim);
  l.keys.kv_layer = 1;
  l.keys.state_offset = kSparseStateOffset;
  l.keys.gamma = *b.add_vector(gammas(s.index.dim));
  l.keys.eps = kEps;
  l.keys.rope = b.add_rope({.head_dim = s.index.dim,
                            .n_rot = rotated(s),
                            .freq_base = static_cast<float>(kBase),
                            .freq_divisors = {}});
  l.free_pages.resize(o.max_pages);
  std::iota(l.free_pages.begin(), l.free_pages.end(), 0u);
  std::shuffle(l.free_pages.begin(), l.free_pages.end(), std::mt19937(5));
  l.free_slots.resize(64);
  std::iota(l.free_slots.begin(), l.free_slots.end(), 0u);
  return l;
}

void give_memory(SparseLayer& l, SparseSequence& x) {
  for (int64_t n = static_cast<int64_t>(x.pages.size()) * kSparsePageTokens; n < x.n;
       n += kSparsePageTokens) {
    x.pages.push_back(l.free_pages.back());
    l.free_pages.pop_back();
  }
  x.slot = l.free_slots.back();
  l.free_slots.pop_back();
  l.backend->zero_slot(x.slot);
}

void run_sparse_parts(SparseLayer& l, const std::vector<SparsePart>& parts) {
  const SparseShape& s = l.shape;
  std::vector<Step::Sequence> sequences;
  std::vector<float> q, k, v, index_q, index_k;
  for (const SparsePart& p : parts) {
    const ops::SlotId from = p.x->slot;
    if (p.change_slot) {
      p.x->slot = l.free_slots.back();
      l.free_slots.back() = from;
    }
    sequences.push_back({.n_past = static_cast<uint32_t>(p.begin),
                         .n_rows = static_cast<uint32_t>(p.end - p.begin),
                         .pages = p.x->pages,
                         .src_slot = from,
                         .dst_slot = p.x->slot});
    append(q, p.x->q, p.begin, p.end, int64_t{s.n_heads} * s.head_dim);
    append(k, p.x->k, p.begin, p.end, int64_t{s.n_kv_heads} * s.head_dim);
    append(v, p.x->v, p.begin, p.end, int64_t{s.n_kv_heads} * s.head_dim);
    append(index_q, p.x->index_q, p.begin, p.end, int64_t{s.index_heads} * s.index.dim);
    append(index_k, p.x->index_k, p.begin, p.end, s.index.dim);
  }
  write_rows(*l.backend, l.q, q);
  write_rows(*l.backend, l.k, k);
  write_rows(*l.backend, l.v, v);
  write_rows(*l.backend, l.index_q, index_q);
  write_rows(*l.backend, l.index_k, index_k);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  run_step(*l.backend, Step(sequences), [&] {
    l.backend->kv_append(1, l.k, l.v);
    l.backend->index_append(l.keys, l.index_k);
    l.backend->select_blocks(1, l.index_q);
    l.backend->attend_selected(1, l.q, s.n_heads, scale, l.out);
  });
  uint32_t row = 0;
  for (const SparsePart& p : parts) {
    for (int64_t t = p.begin; t < p.end; ++t, ++row) {
      const std::span<const float> values = l.backend->read(l.out, row);
      p.result->out.insert(p.result->out.end(), values.begin(), values.end());
      p.result->positions.push_back(l.backend->selected_positions(1, row));
    }
  }
}

SparseResult run_sparse_chunks(SparseLayer& l, SparseSequence& x, int64_t chunk, bool change_slot) {
  SparseResult result;
  for (int64_t t = 0; t < x.n; t += chunk) {
    run_sparse_parts(l, {{&x, t, std::min(t + chunk, x.n), &result, change_slot}});
  }
  return result;
}

REFERENCE_CODE std::vector<double> reference_scores(const SparseLayer& l, const SparseSequence& x,
                                                    int64_t position) {
  const SparseShape& s = x.shape;
  const int64_t dim = s.index.dim, block = s.index.block_tokens, half = rotated(s) / 2;
  const std::vector<float> gamma = gammas(s.index.dim);
  std::vector<double> scores;
  static_cast<void>(l);
  for (int64_t b = 0; (b + 1) * block <= position + 1; ++b) {
    std::vector<double> p(static_cast<size_t>(dim));
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < block; ++j) sum += x.index_k[(b * block + j) * dim + i];
      p[i] = sum / block;
      squares += p[i] * p[i];
    }
    const double norm = 1.0 / std::sqrt(squares / dim + kEps);
    for (int64_t i = 0; i < dim; ++i) p[i] *= norm * gamma[i];
    for (int64_t i = 0; i < half; ++i) {
      const double angle = b * block * std::pow(kBase, -2.0 * i / (2 * half));
      const double u = p[i], w = p[i + half];
      p[i] = u * std::cos(angle) - w * std::sin(angle);
      p[i + half] = u * std::sin(angle) + w * std::cos(angle);
    }
    double score = 0;
    for (int64_t h = 0; h < s.index_heads; ++h) {
      double dot = 0;
      const float* q = x.index_q.data() + (position * s.index_heads + h) * dim;
      for (int64_t i = 0; i < dim; ++i) dot += q[i] * p[i];
      score += std::max(0.0, dot);
    }
    scores.push_back(score / std::sqrt(static_cast<double>(dim)));
  }
  return scores;
}

REFERENCE_CODE std::vector<double> reference_attend(const SparseSequence& x, int64_t position,
                                                    const std::vector<uint32_t>& positions,
                                                    ops::KvType type) {
  const SparseShape& s = x.shape;
  const int64_t d = s.head_dim;
  const std::vector<float> k = stored(x.k, type), v = stored(x.v, type);
  std::vector<double> out(static_cast<size_t>(s.n_heads * d));
  for (int64_t h = 0; h < s.n_heads; ++h) {
    const int64_t g = h / (s.n_heads / s.n_kv_heads);
    const float* q = x.q.data() + (position * s.n_heads + h) * d;
    std::vector<double> p;
    for (const uint32_t j : positions) {
      double dot = 0;
      for (int64_t i = 0; i < d; ++i) dot += double{q[i]} * k[(j * s.n_kv_heads + g) * d + i];
      p.push_back(dot / std::sqrt(static_cast<double>(d)));
    }
    const double m = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      const double e = std::exp(p[j] - m);
      sum += e;
      const float* row = v.data() + (positions[j] * s.n_kv_heads + g) * d;
      for (int64_t i = 0; i < d; ++i) out[h * d + i] += e * row[i];
    }
    for (int64_t i = 0; i < d; ++i) out[h * d + i] /= sum;
  }
  return out;
}

}  // namespace okibi::ops_test
