// Hashed n-grams as the backend reads them: rows of the table for the tokens of a step, whatever
// part of the sequence came before it, and what it asks the system to read ahead.
#include <algorithm>

#include "ops/matrices.h"
#include "ops/ngram_hash.h"
#include "ops/ops_fixture.h"

namespace okibi::ops_test {
namespace {

constexpr int32_t kReset = 3;
constexpr int32_t kHeadsPerOrder = 2;
constexpr int64_t kWidth = 96;
constexpr uint64_t kRows[] = {101, 103, 107, 109};
const std::vector<uint64_t> kMultipliers = {23703573157769, 20109073645365, 8052911324071};

class Ngram : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(LevelsAndTypes, Ngram,
                         testing::ValuesIn(cases_of({DType::kF32, DType::kF16, DType::kBF16,
                                                     DType::kQ8_0, DType::kIQ4_NL})),
                         type_case_name);

// Four heads, each a matrix of its own.
struct Table {
  std::vector<Matrix> heads;
  ops::NgramTableSource source;
};

Table make_table(DType type) {
  Table t;
  t.source.type = type;
  t.source.row_width = kWidth;
  t.source.heads_per_order = kHeadsPerOrder;
  t.source.reset_token = kReset;
  t.source.multipliers = kMultipliers;
  for (uint32_t h = 0; h < 4; ++h) {
    t.heads.push_back(make_matrix(type, kWidth, static_cast<int64_t>(kRows[h]), 20 + h));
  }
  for (size_t h = 0; h < 4; ++h) t.source.heads.push_back({t.heads[h].file.data(), kRows[h]});
  return t;
}

// The rows of the token at `t` of a sequence.
std::vector<float> expected_row(const Table& table, const std::vector<int32_t>& ids, size_t t) {
  int32_t window[3];
  uint64_t hashes[2];
  ops::ngram_window(ids[t], std::span(ids).first(t), kReset, window);
  ops::ngram_hashes(window, kMultipliers, hashes);
  std::vector<float> row;
  for (size_t h = 0; h < 4; ++h) {
    const auto at = static_cast<int64_t>(hashes[h / kHeadsPerOrder] % kRows[h]) * kWidth;
    const auto first = table.heads[h].values.begin() + at;
    row.insert(row.end(), first, first + kWidth);
  }
  return row;
}

std::vector<float> expected_rows(const Table& table, const std::vector<int32_t>& ids) {
  std::vector<float> rows;
  for (size_t t = 0; t < ids.size(); ++t) {
    const std::vector<float> row = expected_row(table, ids, t);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

const std::vector<int32_t> kIds = {7, 8, 3, 9, 10, 11, 3, 3, 12, 0, 248043, 7, 8, 9};

TEST_P(Ngram, ReadsTheSameRowsHoweverTheSequenceIsCut) {
  const Table table = make_table(GetParam().type);
  const std::vector<float> want = expected_rows(table, kIds);
  for (const int n_threads : {1, 3}) {
    const auto backend = open(GetParam().level, n_threads);
    const ops::NgramTable handle = *backend->add_ngram_table(table.source);
    ASSERT_EQ(handle.cols, 4 * kWidth);
    const ops::Rows out = make_rows(*backend, 16, handle.cols);
    for (size_t chunk = 1; chunk <= kIds.size(); ++chunk) {
      // Two past tokens are enough; sometimes the whole past is there.
      for (const size_t n_known : {size_t{2}, kIds.size()}) {
        std::vector<float> got;
        for (size_t t = 0; t < kIds.size(); t += chunk) {
          const size_t n = std::min(chunk, kIds.size() - t), known = std::min(n_known, t);
          Step::Sequence s;
          s.n_past = static_cast<uint32_t>(t);
          s.n_rows = static_cast<uint32_t>(n);
          s.past_tokens.assign(kIds.begin() + static_cast<int64_t>(t - known),
                               kIds.begin() + static_cast<int64_t>(t));
          Step step({s});
          step.set_tokens(
              {kIds.begin() + static_cast<int64_t>(t), kIds.begin() + static_cast<int64_t>(t + n)});
          run_step(*backend, step, [&] { backend->ngram_embed(handle, out); });
          const std::vector<float> rows = read_rows(*backend, out, static_cast<int64_t>(n));
          got.insert(got.end(), rows.begin(), rows.end());
        }
        EXPECT_EQ(got, want) << "chunks of " << chunk << ", " << n_threads << " threads";
      }
    }
  }
}

TEST_P(Ngram, KeepsSequencesOfAStepApart) {
  const Table table = make_table(GetParam().type);
  const auto backend = open(GetParam().level, 2);
  const ops::NgramTable handle = *backend->add_ngram_table(table.source);
  const ops::Rows out = make_rows(*backend, 16, handle.cols);
  const std::vector<int32_t> other = {20, 21, 22, 23};
  Step::Sequence a, b;
  a.n_past = 5;
  a.n_rows = 2;
  a.past_tokens = {kIds.begin(), kIds.begin() + 5};
  b.n_rows = 4;
  Step step({a, b});
  step.set_tokens({kIds[5], kIds[6], 20, 21, 22, 23});
  run_step(*backend, step, [&] { backend->ngram_embed(handle, out); });
  std::vector<float> want = expected_row(table, kIds, 5);
  const std::vector<float> second = expected_row(table, kIds, 6),
                           rest = expected_rows(table, other);
  want.insert(want.end(), second.begin(), second.end());
  want.insert(want.end(), rest.begin(), rest.end());
  EXPECT_EQ(read_rows(*backend, out, 6), want);
}

TEST_P(Ngram, PrefetchesEveryRowOnceAndNothingOutsideTheHeads) {
  Table table = make_table(GetParam().type);
  std::vector<std::pair<const uint8_t*, const uint8_t*>> asked;
  table.source.prefetch = [&](const uint8_t* p, uint64_t n) { asked.push_back({p, p + n}); };
  const auto backend = open(GetParam().level);
  const ops::NgramTable handle = *backend->add_ngram_table(table.source);
  const auto n = static_cast<uint32_t>(kIds.size());
  Step step = Step::plain(n);
  step.set_tokens(kIds);
  run_step(*backend, step, [&] { backend->ngram_prefetch(handle); });
  const auto page_of = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p) / 4096; };
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto [begin, end] = asked[i];
    EXPECT_TRUE(std::any_of(table.heads.begin(), table.heads.end(), [&](const Matrix& m) {
      return begin >= m.file.data() && end <= m.file.data() + m.file.size();
    }));
    const bool same_head =
        i > 0 && asked[i - 1].second <= begin &&
        std::any_of(table.heads.begin(), table.heads.end(), [&](const Matrix& m) {
          return asked[i - 1].first >= m.file.data() && end <= m.file.data() + m.file.size();
        });
    if (same_head) {
      EXPECT_GT(page_of(begin), page_of(asked[i - 1].second - 1) + 1);
    }
  }
  const auto bytes = static_cast<int64_t>(row_bytes(GetParam().type, kWidth));
  for (size_t t = 0; t < kIds.size(); ++t) {
    int32_t window[3];
    uint64_t hashes[2];
    ops::ngram_window(kIds[t], std::span(kIds).first(t), kReset, window);
    ops::ngram_hashes(window, kMultipliers, hashes);
    for (size_t h = 0; h < 4; ++h) {
      const uint8_t* row = table.heads[h].file.data() +
                           static_cast<int64_t>(hashes[h / kHeadsPerOrder] % kRows[h]) * bytes;
      EXPECT_TRUE(std::any_of(asked.begin(), asked.end(), [&](const auto& range) {
        return range.first <= row && row + bytes <= range.second;
      }));
    }
  }
}

TEST(NgramErrors, TablesThatMakeNoSenseAreRefused) {
  const auto backend = open(CpuLevel::kReference);
  const Table good = make_table(DType::kQ8_0);
  ops::NgramTableSource bad = good.source;
  bad.heads.pop_back();
  EXPECT_EQ(backend->add_ngram_table(bad).status().code(), StatusCode::kInvalidArgument);
  bad = good.source;
  bad.row_width = 100;
  EXPECT_EQ(backend->add_ngram_table(bad).status().code(), StatusCode::kInvalidArgument);
  bad = good.source;
  bad.heads[1].n_rows = 0;
  EXPECT_EQ(backend->add_ngram_table(bad).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(backend->add_ngram_table(good.source).ok());
}

}  // namespace
}  // namespace okibi::ops_test
