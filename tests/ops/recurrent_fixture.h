// What the tests of recurrent operations share: sequences that are fed in pieces, and promise P1
// for operations with state.
#pragma once

#include <utility>

#include "ops/ops_fixture.h"

namespace okibi::ops_test {

// An operation on its own buffers, with 8 slots of slot_floats.
struct RecurrentModel {
  std::unique_ptr<ops::Backend> backend;
  std::vector<ops::Rows> inputs;
  ops::Rows out;  // may be one of the inputs
  uint64_t slot_floats = 0;
  std::function<void()> op;
};

using Inputs = std::vector<std::vector<float>>;  // of each buffer, all rows of a sequence

struct FedSequence {
  const Inputs* inputs = nullptr;
  ops::SlotId slot = 0;  // below 4
  size_t done = 0;
  std::vector<float> out;
};

// One step with the next n rows of each sequence. Not in place: state moves to the slot's twin.
inline void feed(RecurrentModel& m, const std::vector<std::pair<FedSequence*, size_t>>& parts,
                 bool in_place) {
  std::vector<Step::Sequence> spans;
  Inputs values(m.inputs.size());
  size_t n_rows = 0;
  for (const auto& [s, n] : parts) {
    const ops::SlotId next = in_place ? s->slot : s->slot ^ 4u;
    spans.push_back({.n_past = static_cast<uint32_t>(s->done),
                     .n_rows = static_cast<uint32_t>(n),
                     .src_slot = s->slot,
                     .dst_slot = next});
    for (size_t i = 0; i < values.size(); ++i) {
      const auto cols = static_cast<size_t>(m.inputs[i].cols);
      const float* from = (*s->inputs)[i].data() + s->done * cols;
      values[i].insert(values[i].end(), from, from + n * cols);
    }
    s->slot = next;
    s->done += n;
    n_rows += n;
  }
  for (size_t i = 0; i < values.size(); ++i) write_rows(*m.backend, m.inputs[i], values[i]);
  run_step(*m.backend, Step(spans), m.op);
  const std::vector<float> out = read_rows(*m.backend, m.out, static_cast<int64_t>(n_rows));
  const auto cols = static_cast<size_t>(m.out.cols);
  size_t row = 0;
  for (const auto& [s, n] : parts) {
    s->out.insert(s->out.end(), out.begin() + static_cast<int64_t>(row * cols),
                  out.begin() + static_cast<int64_t>((row + n) * cols));
    row += n;
  }
}

inline size_t row_count(const RecurrentModel& m, const Inputs& inputs) {
  return inputs[0].size() / static_cast<size_t>(m.inputs[0].cols);
}

inline std::vector<float> slot_of(const RecurrentModel& m, ops::SlotId slot) {
  std::vector<float> state(m.slot_floats);
  m.backend->download_slot(slot, state);
  return state;
}

// Outputs, then the slot, of a sequence from empty state in steps of `chunk` rows.
inline std::vector<float> run_in_steps(RecurrentModel& m, const Inputs& inputs, size_t chunk,
                                       bool in_place) {
  FedSequence s{&inputs, 1};
  m.backend->zero_slot(1);
  m.backend->zero_slot(5);
  const size_t n = row_count(m, inputs);
  while (s.done < n) feed(m, {{&s, std::min(chunk, n - s.done)}}, in_place);
  const std::vector<float> state = slot_of(m, s.slot);
  s.out.insert(s.out.end(), state.begin(), state.end());
  return s.out;
}

// The same bits for every split into steps, in place and from slot to slot, beside another
// sequence, and for every number of threads.
inline void expect_p1(const std::function<RecurrentModel(int n_threads)>& make, const Inputs& a,
                      const Inputs& b, const std::vector<size_t>& chunks) {
  RecurrentModel alone = make(1);
  const size_t n = row_count(alone, a), n_b = row_count(alone, b);
  const std::vector<float> want = run_in_steps(alone, a, n, true);
  const std::vector<float> want_b = run_in_steps(alone, b, n_b, true);
  for (const int n_threads : {1, 2, 3}) {
    RecurrentModel m = make(n_threads);
    for (const size_t chunk : chunks) {
      EXPECT_EQ(run_in_steps(m, a, chunk, true), want) << chunk << " rows, threads " << n_threads;
      EXPECT_EQ(run_in_steps(m, a, chunk, false), want) << chunk << " rows, slot to slot";
      FedSequence s{&a, 2}, t{&b, 3};
      for (const ops::SlotId slot : {2u, 3u, 6u, 7u}) m.backend->zero_slot(slot);
      while (s.done < n || t.done < n_b) {
        const size_t rows_s = std::min(chunk, n - s.done);
        const size_t rows_t = std::min(chunk / 2 + 1, n_b - t.done);
        std::vector<std::pair<FedSequence*, size_t>> parts;
        if (rows_t > 0) parts.push_back({&t, rows_t});
        if (rows_s > 0) parts.push_back({&s, rows_s});
        feed(m, parts, chunk % 2 == 0);
      }
      const std::vector<float> state = slot_of(m, s.slot), state_b = slot_of(m, t.slot);
      s.out.insert(s.out.end(), state.begin(), state.end());
      t.out.insert(t.out.end(), state_b.begin(), state_b.end());
      EXPECT_EQ(s.out, want) << chunk << " rows beside another sequence";
      EXPECT_EQ(t.out, want_b) << chunk << " rows before another sequence";
    }
  }
}

// The vector levels do the same operations in the same order.
inline void expect_same_vector_levels(const std::function<RecurrentModel(CpuLevel)>& make,
                                      const Inputs& inputs, size_t chunk) {
  std::vector<float> want;
  for (const CpuLevel level : host_levels()) {
    if (level < CpuLevel::kAvx2) continue;
    RecurrentModel m = make(level);
    const std::vector<float> got = run_in_steps(m, inputs, chunk, true);
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << cpu_level_name(level);
  }
}

}  // namespace okibi::ops_test
