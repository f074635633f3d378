// keep_tails: the step shrinks to the last rows of each sequence, behind the last operation that
// reads all of them.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

void CpuBackend::check_all_rows() const {
  CHECK(plan_ != &tails_.plan, "layer %d needs rows that keep_tails dropped", layer_);
}

// What later operations read of a plan. Tokens, embeddings and past tokens belong to the whole.
void CpuBackend::Tails::begin(const ops::BatchPlan& whole) {
  sequences.assign(whole.sequences.begin(), whole.sequences.end());
  for (ops::SequenceSpan& s : sequences) s.past_tokens = {};
  positions.assign(whole.positions.begin(), whole.positions.end());
  row_sequence.assign(whole.row_sequence.begin(), whole.row_sequence.end());
  output_rows.assign(whole.output_rows.begin(), whole.output_rows.end());
  plan = {.n_rows = whole.n_rows,
          .sequences = sequences,
          .output_rows = output_rows,
          .label_begin = whole.label_begin,
          .labels = whole.labels};
}

void CpuBackend::keep_tails(uint32_t n_before, std::span<const ops::Rows> inouts) {
  const ZoneTimer timer(*this, Zone::kOther);
  for (const ops::Rows r : inouts) {
    CHECK(rows(r).n_valid == plan_->n_rows, "rows %d: %lld of %u", r.id,
          static_cast<long long>(rows(r).n_valid), plan_->n_rows);
  }
  const std::span<const uint32_t> outputs = plan_->output_rows;
  uint32_t n_all = 0;
  size_t next = 0;  // output
  tails_.n_kept.clear();
  for (const ops::SequenceSpan& s : plan_->sequences) {
    const uint32_t end = s.first_row + s.n_rows;
    uint32_t n = n_before;
    if (next < outputs.size() && outputs[next] < end) n += end - outputs[next];
    while (next < outputs.size() && outputs[next] < end) ++next;
    tails_.n_kept.push_back(std::min(n, s.n_rows));
    n_all += tails_.n_kept.back();
  }
  if (n_all == plan_->n_rows) return;

  Tails& t = tails_;
  if (plan_ != &t.plan) t.begin(*plan_);
  for (RowsBuffer& buffer : rows_) buffer.n_valid = 0;
  // Rows only move to lower numbers, sequence after sequence: everything happens in place.
  uint32_t to = 0;
  next = 0;
  for (size_t i = 0; i < t.sequences.size(); ++i) {
    ops::SequenceSpan& s = t.sequences[i];
    const uint32_t end = s.first_row + s.n_rows, n = t.n_kept[i], from = end - n;
    for (; next < t.output_rows.size() && t.output_rows[next] < end; ++next) {
      t.output_rows[next] -= from - to;
    }
    for (const ops::Rows r : inouts) {
      RowsBuffer& x = rows(r);
      std::memmove(x.row(to), x.row(from), static_cast<size_t>(n * x.stride) * sizeof(float));
    }
    std::copy_n(t.positions.begin() + from, n, t.positions.begin() + to);
    std::fill_n(t.row_sequence.begin() + to, n, static_cast<uint32_t>(i));
    s.first_row = to;
    s.n_past += s.n_rows - n;
    s.n_rows = n;
    to += n;
  }
  for (const ops::Rows r : inouts) rows(r).n_valid = to;
  t.positions.resize(to);
  t.row_sequence.resize(to);
  t.plan.n_rows = to;
  t.plan.positions = t.positions;
  t.plan.row_sequence = t.row_sequence;
  plan_ = &t.plan;
  for (RopeTable& table : ropes_) table.ready = false;
}

}  // namespace okibi::cpu
