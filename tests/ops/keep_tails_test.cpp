// Dropping rows in the middle of a step: every row that is left, every state and every output has
// the bits that it has in the whole step.
#include <algorithm>
#include <numeric>

#include "ops/ops_fixture.h"

namespace okibi::ops_test {
namespace {

class KeepTails : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, KeepTails, testing::ValuesIn(host_levels()), level_test_name);

constexpr int32_t kHeads = 4, kKvHeads = 2, kDim = 32, kVocab = 40;
constexpr int64_t kWidth = 48, kTaps = 3;
constexpr uint32_t kReach = kTaps - 1;

struct Sequence {
  uint32_t n_past, n_rows;
  std::vector<uint32_t> outputs;  // rows of its own
  uint32_t n_kept, n_kept_later;  // by keep_tails(kReach), then keep_tails(0)
};

// Outputs at the last row, nowhere, in the middle, everywhere; spans shorter and longer than what
// is kept.
const std::vector<Sequence> kSequences = {
    {5, 9, {8}, 3, 1},           {3, 1, {}, 1, 0},   {0, 7, {3, 5}, 6, 4},
    {20, 4, {0, 1, 2, 3}, 4, 4}, {11, 2, {}, 2, 0},  {30, 8, {}, 2, 0},
    {2, 1, {0}, 1, 1},           {15, 3, {1}, 3, 2}, {47, 40, {38}, 4, 2}};

// What a step leaves: the rows of `left` of each sequence, its outputs, its states.
struct Left {
  std::vector<std::vector<float>> attended, convolved, later;  // by sequence
  std::vector<float> outputs, logits, states;
};

struct Fixture {
  std::unique_ptr<ops::Backend> backend;
  ops::Rows q, k, v, bcx, attended, convolved, outputs, logits;
  ops::Vector kernel;
  ops::Weight matrix;
  ops::Rope rope;
};

constexpr uint64_t kOffset = 5;

Fixture make_fixture(CpuLevel level, ops::KvType type, const std::vector<float>& matrix) {
  Fixture f;
  f.backend = open(level, 2);
  ops::Backend& b = *f.backend;
  EXPECT_TRUE(b.set_kv({.layers = {{kKvHeads, kDim, kDim}},
                        .type = type,
                        .page_tokens = 16,
                        .max_pages = 6 * static_cast<uint32_t>(kSequences.size())})
                  .ok());
  EXPECT_TRUE(b.set_state({.floats_per_slot = kOffset + kReach * kWidth,
                           .max_slots = 2 * static_cast<uint32_t>(kSequences.size())})
                  .ok());
  f.q = make_rows(b, 80, kHeads * kDim, random_floats(80 * kHeads * kDim, 1));
  f.k = make_rows(b, 80, kKvHeads * kDim, random_floats(80 * kKvHeads * kDim, 2));
  f.v = make_rows(b, 80, kKvHeads * kDim, random_floats(80 * kKvHeads * kDim, 3));
  f.bcx = make_rows(b, 80, 3 * kWidth, random_floats(80 * 3 * kWidth, 4));
  f.attended = make_rows(b, 80, kHeads * kDim);
  f.convolved = make_rows(b, 80, kWidth);
  f.outputs = make_rows(b, 80, kHeads * kDim);
  f.logits = make_rows(b, 80, kVocab);
  f.kernel = *b.add_vector(random_floats(kWidth * kTaps, 5));
  f.rope = b.add_rope({.head_dim = kDim, .n_rot = kDim});
  f.matrix = *b.add_weight({.name = "output",
                            .n_in = kHeads * kDim,
                            .n_out = kVocab,
                            .data = reinterpret_cast<const uint8_t*>(matrix.data())});
  return f;
}

Step make_step(bool with_labels) {
  std::vector<Step::Sequence> sequences;
  std::vector<uint32_t> outputs;
  std::vector<std::vector<int32_t>> labels;
  uint32_t first_row = 0, i = 0;
  for (const Sequence& s : kSequences) {
    Step::Sequence& step = sequences.emplace_back();
    step.n_past = s.n_past;
    step.n_rows = s.n_rows;
    for (uint32_t page = 0; page < 6; ++page) step.pages.push_back(i + page * 9);
    step.src_slot = 2 * i;
    step.dst_slot = 2 * i + (i % 2);
    for (uint32_t o : s.outputs) {
      outputs.push_back(first_row + o);
      labels.push_back({static_cast<int32_t>(o % kVocab), 7, 31});
    }
    first_row += s.n_rows;
    ++i;
  }
  Step step(std::move(sequences));
  step.set_outputs(std::move(outputs));
  if (with_labels) step.set_labels(labels);
  return step;
}

// The last n rows of each sequence, where `held` rows of each lie one after another.
template <typename Held, typename Wanted>
std::vector<std::vector<float>> last_rows(const ops::Backend& b, ops::Rows rows, Held held,
                                          Wanted wanted) {
  std::vector<std::vector<float>> all;
  int64_t end = 0;
  for (const Sequence& s : kSequences) {
    end += held(s);
    std::vector<float>& of_sequence = all.emplace_back();
    for (int64_t r = end - wanted(s); r < end; ++r) {
      const std::span<const float> row = b.read(rows, r);
      of_sequence.insert(of_sequence.end(), row.begin(), row.end());
    }
  }
  return all;
}

uint32_t all_of(const Sequence& s) {
  return s.n_rows;
}
uint32_t kept_of(const Sequence& s) {
  return s.n_kept;
}
uint32_t kept_later(const Sequence& s) {
  return s.n_kept_later;
}
// Rows that are right behind a convolution.
uint32_t convolved_of(const Sequence& s) {
  return s.n_kept == s.n_rows ? s.n_rows : s.n_kept - kReach;
}

Left run(CpuLevel level, ops::KvType type, bool drops, bool with_labels) {
  const std::vector<float> matrix = random_floats(kVocab * kHeads * kDim, 6);
  Fixture f = make_fixture(level, type, matrix);
  ops::Backend& b = *f.backend;
  const Step step = make_step(with_labels);
  for (const ops::SequenceSpan& s : step.plan().sequences) {
    ops::SequenceSpan past = s;
    past.n_past = 0;
    past.n_rows = s.n_past;
    past.dst_slot = s.src_slot;
    b.fill_random(past, 100 + s.src_slot);
  }
  Left left;
  const auto held = drops ? kept_of : all_of;
  run_step(b, step, [&] {
    b.rope(f.k, f.rope);  // makes the whole step's angles
    b.kv_append(0, f.k, f.v);
    const ops::Rows first[] = {f.q, f.bcx};
    if (drops) b.keep_tails(kReach, first);
    b.rope(f.q, f.rope);
    b.attend(0, f.q, kHeads, 0.2f, f.attended);
    b.short_conv(kOffset, f.bcx, f.kernel, f.convolved);
    left.attended = last_rows(b, f.attended, held, kept_of);
    left.convolved = last_rows(b, f.convolved, held, convolved_of);
    const ops::Rows second[] = {f.attended, f.q};
    if (drops) b.keep_tails(0, second);
    b.attend(0, f.q, kHeads, 0.3f, f.outputs);
    left.later = last_rows(b, f.outputs, drops ? kept_later : all_of, kept_later);
    b.gather_outputs(f.attended, f.outputs);
    b.logits(f.outputs, f.matrix, f.logits);
  });
  size_t n_outputs = 0;
  for (const Sequence& s : kSequences) n_outputs += s.outputs.size();
  left.outputs = read_rows(b, f.outputs, static_cast<int64_t>(n_outputs));
  left.logits = read_rows(b, f.logits, static_cast<int64_t>(n_outputs));
  for (uint32_t i = 0; i < 2 * kSequences.size(); ++i) {
    std::vector<float> state(kOffset + kReach * kWidth);
    b.download_slot(i, state);
    left.states.insert(left.states.end(), state.begin(), state.end());
  }
  return left;
}

TEST_P(KeepTails, ChangesNoBitOfWhatIsLeft) {
  for (const ops::KvType type : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kQ8_0}) {
    for (const bool with_labels : {false, true}) {
      const Left whole = run(GetParam(), type, false, with_labels);
      const Left tails = run(GetParam(), type, true, with_labels);
      EXPECT_EQ(tails.attended, whole.attended);
      EXPECT_EQ(tails.convolved, whole.convolved);
      EXPECT_EQ(tails.later, whole.later);
      EXPECT_EQ(tails.outputs, whole.outputs);
      EXPECT_EQ(tails.logits, whole.logits);
      EXPECT_EQ(tails.states, whole.states);
    }
  }
}

TEST_P(KeepTails, MovesNothingWhereEveryRowIsWanted) {
  const auto backend = open(GetParam(), 2);
  const std::vector<float> values = random_floats(6 * 40, 8);
  const ops::Rows x = make_rows(*backend, 8, 40, values);
  const ops::Rows y = make_rows(*backend, 8, 40);
  Step decode({{.n_past = 4, .n_rows = 1}, {.n_past = 9, .n_rows = 1}, {.n_past = 1, .n_rows = 4}});
  decode.set_outputs({0, 1, 3});
  const ops::Vector ones = *backend->add_vector(std::vector<float>(40, 1.0f));
  run_step(*backend, decode, [&] {
    backend->rms_norm(x, ones, 1e-5f, y);
    const std::vector<float> before = read_rows(*backend, y, 6);
    backend->keep_tails(1, {&x, 1});
    EXPECT_EQ(read_rows(*backend, x, 6), values);
    EXPECT_EQ(read_rows(*backend, y, 6), before) << "a buffer that was not named";
    backend->keep_tails(0, {&x, 1});  // row 2 goes
    std::vector<float> want(values.begin(), values.begin() + 2 * 40);
    want.insert(want.end(), values.begin() + 3 * 40, values.end());
    EXPECT_EQ(read_rows(*backend, x, 5), want);
  });
  // The next step is whole again.
  write_rows(*backend, x, values);
  run_step(*backend, Step::plain(6), [&] { backend->rms_norm(x, ones, 1e-5f, y); });
  const std::vector<float> all = read_rows(*backend, y, 6);
  EXPECT_NE(all[5 * 40], 0.0f);
}

}  // namespace
}  // namespace okibi::ops_test
